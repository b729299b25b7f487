"""What is asked about activation outliers."""

from typing import ClassVar, Literal

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import WindowSuite

KINDS = ("attention_logits", "hidden_states")
RANKS = (1, 2, 3, 10, 100)
"""Ranks of the largest values that are reported, exactly (DIFF paper, table 5)."""
HISTOGRAMS = "histograms.json"
"""File beside a result: edges and counts of bins, by kind."""


def top_metric(kind: str, rank: int) -> str:
    """Metric of the largest value but rank - 1."""
    return f"{kind}_top{rank}"


def median_metric(kind: str) -> str:
    """Metric of the median of a kind."""
    return f"{kind}_median"


class Suite(WindowSuite):
    """Largest and median absolute activations: attention logits, and outputs of the layers.

    Logits are q'k / sqrt(d) before the softmax, over all pairs that causal attention sees, of both
    maps of a differential head; layer outputs are the residual stream after both halves.
    """

    map_bytes: ClassVar[float] = 34.0

    kind: Literal["outliers"] = setting(meaning="Which evaluation the suite is.")
    max_tokens: int | None = setting(
        400_000,
        meaning="Tokens read, rounded down to whole windows; null: the whole split.",
        unit="tokens",
        source="DIFF paper, section 3.7: 0.4M",
        gt=0,
    )
    backend: Literal["eager"] = setting(
        "eager", meaning="Only the slow implementation has logits to look at."
    )


class Options(evaluation.Options):
    """Which activations a section shows."""

    of: Literal["attention_logits", "hidden_states"] = setting(
        meaning="Attention logits, or hidden states: the outputs of the layers"
    )
