"""What is timed in decoding."""

from collections.abc import Mapping
from itertools import product
from typing import Any, ClassVar

from difftransformer.config import timing
from difftransformer.config.base import Sizes, setting
from difftransformer.config.timing import BatchConfig

MODEL = "model"
"""The one model of a row, which all loads are timed with."""
MODE = "decoding"
"""The one thing that a row does."""


class Load(BatchConfig):
    """What is written in one turn, and behind how many positions."""

    context: int


class Timing(timing.Timing):
    """What is timed at a scale: every row writes tokens at each batch size and context length."""

    matched: ClassVar[bool] = True

    model: dict[str, Any] = setting(
        {}, meaning="Settings of the model that differ from the rows' own, see ModelConfig."
    )
    batches: Sizes = setting(meaning="Sequences that are written at one time.", unit="sequences")
    contexts: Sizes = setting(
        meaning="Positions in the cache before the first new token.", unit="tokens"
    )
    new_tokens: int = setting(16, meaning="Tokens written in one turn.", unit="tokens", gt=0)

    def calls(self) -> Mapping[str, Load]:
        """Every batch size and context length."""
        return {
            f"b{batch}_s{context}": Load(
                label=f"batch {batch}, context {context}",
                seq_len=self.new_tokens,
                batch_size=batch,
                context=context,
            )
            for batch, context in product(self.batches, self.contexts)
        }

    def sizes(self) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        """One model, with positions for the longest context and what is written behind it."""
        longest = max(self.contexts) + self.new_tokens
        return {MODEL: ("decoding", self.model | {"max_positions": longest})}


class Options(timing.Options):
    """What a section shows."""

    timing: ClassVar[str] = "decoding"
    claim_columns: ClassVar[tuple[str, ...]] = ("ratio",)
