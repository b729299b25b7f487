"""What is timed in decoding."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, ClassVar, Literal

from difftransformer.config import timing
from difftransformer.config.base import Sizes, setting
from difftransformer.config.measurement import Options as BaseOptions
from difftransformer.config.timing import Backends, BatchConfig, Models, Sizing

MODEL = "model"
"""The one model of a row, which all loads are timed with."""
MODE = "decoding"
"""The one thing that a row does."""

MEMORY_BANDWIDTH = {
    **{"H100 PCIe": 2.0e12, "H100 NVL": 3.9e12, "H100": 3.35e12, "H200": 4.8e12},
    **{"A100-SXM4-80GB": 2.04e12, "A100 80GB PCIe": 1.94e12},
    **{"A100-SXM4-40GB": 1.56e12, "A100-PCIE-40GB": 1.56e12},
}
"""Of their makers' data sheets; the first words that a name has count."""


def load_name(batch: int, context: int) -> str:
    """Shape of so many sequences with so many positions in the cache."""
    return f"b{batch}_s{context}"


class Timing(timing.Timing):
    """What is timed at a scale: every row writes tokens at each batch size and context length."""

    model: dict[str, Any] = setting(
        {}, meaning="Settings of the model that differ from the rows' own, see ModelConfig."
    )
    batches: Sizes = setting(meaning="Sequences that are written at one time.", unit="sequences")
    contexts: Sizes = setting(
        meaning="Positions in the cache before the first new token.", unit="tokens"
    )
    new_tokens: int = setting(16, meaning="Tokens written in one turn.", unit="tokens", gt=0)
    backends: Backends = setting(
        ["sdpa"], meaning="Attention implementations; the fastest for a row counts."
    )
    precision: Literal["fp32", "bf16"] = setting("fp32", meaning="Precision of weights and cache.")
    memory_bandwidth: dict[str, float] = setting(
        MEMORY_BANDWIDTH,
        meaning="Speed of a GPU's memory by words of its name, for the share of it that decoding "
        "reaches; one that is not here has no share. A CPU's is measured.",
        unit="bytes/s",
    )

    @property
    def loads(self) -> list[tuple[int, int]]:
        """Every batch size and context length."""
        return list(product(self.batches, self.contexts))

    def timed(self) -> Mapping[str, BatchConfig]:
        """What a call writes, by shape: the load."""
        return {
            load_name(batch, context): BatchConfig(
                label=f"batch {batch}, context {context}", seq_len=self.new_tokens, batch_size=batch
            )
            for batch, context in self.loads
        }

    def models(self, rows: Sequence[str], own: Sequence[str], sized: Sizing) -> Models:
        """Those of the rows, at the scale's sizes; with a `match`, the parameters of the first."""
        longest = max(self.contexts) + self.new_tokens
        found = [sized.changed(row, self.model, longest, "timings.decoding") for row in rows]
        return {
            row: {MODEL: sized.matched(row, model, found[0])}
            for row, model in zip(rows, found, strict=True)
        }


class Options(BaseOptions):
    """Timings have neither suites nor seeds."""

    suites: ClassVar[int] = 0
    trained: ClassVar[bool] = False
    seeded: ClassVar[bool] = False
    timing: ClassVar[str] = "decoding"
    claim_columns: ClassVar[tuple[str, ...]] = ("ratio",)
