"""Settings and metric names of the evaluation of effective attention."""

from typing import Literal

from difftransformer.config.base import setting
from difftransformer.config.evaluation import AnyModel
from difftransformer.evaluation.retrieval.settings import OneNeedleSuite

WEIGHTS, PROJECTED, EFFECTIVE, DESCENDED = "weights", "projected", "effective", "gradient_descent"
KINDS = {
    WEIGHTS: "Attention weights",
    PROJECTED: "Projected weights",
    EFFECTIVE: "Effective attention",
    DESCENDED: "Effective, by gradient descent",
}
"""Kind of attention rows that are compared, see `measure` -> header."""
LEARNING_RATE = 1e-3
"""Of the gradient descent (arXiv 2505.16333, appendix F.3)."""


def answer_name(kind: str, depth: int | None = None) -> str:
    """Return the metric of the answer's share at a depth, or at all depths."""
    return f"answer_{kind}" + ("" if depth is None else f"_d{depth}")


def negative_name(kind: str) -> str:
    """Return the metric of the fraction of negative weights."""
    return f"negative_{kind}"


class Suite(AnyModel, OneNeedleSuite):
    """Share of the answer in the effective attention of the answering position.

    The answering position is the last token of a needle prompt that queries one of its needles;
    shares are averaged over prompts, layers and heads. All models are projected alike, those
    without Dex too.
    """

    kind: Literal["effective_attention"] = setting(meaning="Which evaluation the suite is.")
    needles: int = setting(
        8,
        meaning="Needles N in a prompt; those not queried are context.",
        unit="needles",
        source="arXiv 2505.16333, section 4.2, of figure 10; not stated for table 2",
        gt=0,
    )
    steps: int = setting(
        100,
        meaning="Steps of the gradient descent that checks the pseudo-inverse.",
        source="arXiv 2505.16333, appendix F.3",
        ge=0,
    )
