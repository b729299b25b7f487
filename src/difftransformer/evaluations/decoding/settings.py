"""Settings of the decoding benchmark."""

from collections.abc import Mapping
from itertools import product
from typing import Any, ClassVar

from difftransformer.config import timing
from difftransformer.config.base import Sizes, setting
from difftransformer.config.timing import BatchConfig

MODEL = "model"
"""Key of a row's model, which all shapes use."""
MODE = "decoding"
"""The only mode that is timed."""


class DecodingShape(BatchConfig):
    """New tokens of a call, and the positions in the cache before them."""

    context: int


class Timing(timing.Timing):
    """Settings at a scale: every row decodes at each batch size and context length."""

    matched: ClassVar[bool] = True

    model: dict[str, Any] = setting(
        {}, meaning="Settings of the model that differ from the rows' own, see ModelConfig."
    )
    batches: Sizes = setting(meaning="Sequences decoded at a time.", unit="sequences")
    contexts: Sizes = setting(
        meaning="Positions in the cache before the first new token.", unit="tokens"
    )
    new_tokens: int = setting(16, meaning="New tokens per timed call.", unit="tokens", gt=0)

    def calls(self) -> Mapping[str, DecodingShape]:
        """Return every batch size and context length by the name of their shape."""
        return {
            f"b{batch}_s{context}": DecodingShape(
                label=f"batch {batch}, context {context}",
                seq_len=self.new_tokens,
                batch_size=batch,
                context=context,
            )
            for batch, context in product(self.batches, self.contexts)
        }

    def sizes(self) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        """Return one model with positions for the longest context and the new tokens."""
        longest = max(self.contexts) + self.new_tokens
        return {MODEL: ("decoding", self.model | {"max_positions": longest})}


class Options(timing.Options):
    """Report options."""

    timing: ClassVar[str] = "decoding"
    claim_columns: ClassVar[tuple[str, ...]] = ("ratio",)
