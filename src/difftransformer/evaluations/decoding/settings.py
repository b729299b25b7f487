"""Settings of the decoding benchmark."""

from collections.abc import Mapping
from itertools import product
from typing import Any, ClassVar

from difftransformer.config import timing
from difftransformer.config.base import Sizes, setting
from difftransformer.config.timing import BatchConfig

MODEL = "model"
"""Key of a row's model; all shapes time the same model."""
MODE = "decoding"
"""Name of the timed mode; there is only one."""


class DecodingShape(BatchConfig):
    """Timed decoding call: number of sequences, new tokens, and cached positions before them."""

    context: int


class Timing(timing.Timing):
    """Settings of the decoding benchmark at a scale: its batch sizes and context lengths."""

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
        """Return the timed calls by name, one for each batch size and context length."""
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
        """Return the settings of the timed model, with positions for context and new tokens."""
        longest = max(self.contexts) + self.new_tokens
        return {MODEL: ("decoding", self.model | {"max_positions": longest})}


class Options(timing.Options):
    """Report options of the decoding benchmark."""

    timing: ClassVar[str] = "decoding"
    claim_columns: ClassVar[tuple[str, ...]] = ("ratio",)
