"""What is asked about the effective attention of heads whose output is changed."""

from typing import Literal

from difftransformer.config.base import setting
from difftransformer.config.evaluation import AnyModel
from difftransformer.evaluation.retrieval.settings import OneNeedleSuite

WEIGHTS, PROJECTED, EFFECTIVE, DESCENDED = "weights", "projected", "effective", "descended"
KINDS = {
    WEIGHTS: "As the head has them",
    PROJECTED: "Projected",
    EFFECTIVE: "Effective",
    DESCENDED: "Effective, by descent",
}
"""Rows of attention that are compared, see `measure`."""
RATE = 1e-3
"""Learning rate of the gradient descent (arXiv 2505.16333, appendix F.3)."""


def answer_name(kind: str, depth: int | None = None) -> str:
    """Metric of the share that the answer gets, at a depth or in all."""
    return f"answer_{kind}" + ("" if depth is None else f"_d{depth}")


def negative_name(kind: str) -> str:
    """Metric of the share of weights that are negative."""
    return f"negative_{kind}"


class Suite(AnyModel, OneNeedleSuite):
    """How much of the effective attention of the answering position goes to the answer.

    Of the last token of a needle prompt, averaged over prompts, layers and heads; one of the
    needles is asked for. All rows, those of models that were never changed among them, are
    projected alike.
    """

    kind: Literal["effective_attention"] = setting(meaning="Which evaluation the suite is.")
    needles: int = setting(
        8,
        meaning="Needles N in a prompt; those not asked for are context.",
        unit="needles",
        source="arXiv 2505.16333, section 4.2, of figure 10; not stated for table 2",
        gt=0,
    )
    steps: int = setting(
        100,
        meaning="Steps of gradient descent that check the pseudo-inverse.",
        source="arXiv 2505.16333, appendix F.3",
        ge=0,
    )
