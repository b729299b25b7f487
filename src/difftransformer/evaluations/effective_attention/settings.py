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
"""Kind of attention weights (see `measure`) -> column header."""
LEARNING_RATE = 1e-3
"""Learning rate of the gradient descent (arXiv 2505.16333, appendix F.3)."""


def answer_name(kind: str, depth: int | None = None) -> str:
    """Return the name of the metric for the answer's share at a depth, or over all depths."""
    return f"answer_{kind}" + ("" if depth is None else f"_d{depth}")


def negative_name(kind: str) -> str:
    """Return the name of the metric for the fraction of negative weights of a kind."""
    return f"negative_{kind}"


class Suite(AnyModel, OneNeedleSuite):
    """Suite of the answer's share in the effective attention of a needle prompt's last token.

    The last token generates the answer; the prompt queries one of its needles. Shares are averaged
    over prompts, layers and heads. The attention of all models is projected, also without Dex.
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
