"""Settings of the activation outliers evaluation."""

from typing import ClassVar, Literal

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import WindowSuite

KINDS = ("attention_logits", "hidden_states")
RANKS = (1, 2, 3, 10, 100)
"""Reported ranks of the largest values (DIFF paper, table 5)."""
HISTOGRAMS = "histograms.json"
"""File in the details of a result: edges and counts of histogram bins, by kind of activation."""


class Suite(WindowSuite):
    """Suite of the largest and median absolute activations: attention logits, and layer outputs.

    Logits are q'k / sqrt(d) before the softmax, over all pairs that the causal mask allows, in both
    maps of a differential head. Layer outputs are the residual stream after attention and MLP.
    """

    map_bytes: ClassVar[float] = 34.0

    kind: Literal["outliers"] = setting(meaning="Which evaluation the suite is.")
    max_tokens: int | None = setting(
        400_000,
        meaning="Number of tokens, rounded down to full windows; null: the full split.",
        unit="tokens",
        source="DIFF paper, section 3.7: 0.4M",
        gt=0,
    )
    backend: Literal["eager"] = setting(
        "eager", meaning="The only backend that exposes its logits."
    )


class Options(evaluation.Options):
    """Report options: the kind of activation that a section shows."""

    activation: Literal["attention_logits", "hidden_states"] = setting(
        meaning="Attention logits, or hidden states (the outputs of the layers)"
    )
