"""What is asked about where the answering position of a needle prompt attends."""

from typing import Literal

from pydantic import model_validator

from difftransformer.config.base import setting
from difftransformer.config.model import ModelConfig
from difftransformer.evaluation.retrieval.settings import RetrievalSuite

REGIONS = ("bos", "before", "answer", "after", "query")
"""First token, context before the answer, the answer, context behind it, the question."""
NOISE = "noise"
"""The context without the answer: before and after."""


def share_name(region: str, depth: int | None = None) -> str:
    """Metric of a region's share, or of noise, at a depth; None: at all of them."""
    return region if depth is None else f"{region}_d{depth}"


class Suite(RetrievalSuite):
    """Where the answering position, the last token of a needle prompt, attends.

    Shares of the first token, the context before and behind the answer needle, the answer needle
    and the question, averaged over prompts, layers and heads; one of the needles is asked for.
    """

    kind: Literal["attention_allocation"] = setting(meaning="Which measurement the suite is.")
    needles: int = setting(
        6,
        meaning="Needles N in a prompt; those not asked for are context.",
        unit="needles",
        source="the paper does not state N for table 3; 6 is the setting of its figure 1",
        gt=0,
    )
    answer: Literal["needle", "value"] = setting(
        "needle",
        meaning="Tokens that are the answer: the whole needle, since a head may read a value from "
        "any token behind which an earlier layer has put it, or the value alone.",
        source="the paper says `answer span` without defining it",
    )
    normalisation: Literal["absolute", "signed"] = setting(
        "absolute",
        meaning="A row of weights is divided by its sum, its weights taken as absolute values or "
        "as they are; for a softmax row both change nothing.",
        source="the paper does not say how it normalises signed maps",
    )

    @model_validator(mode="after")
    def _one_length(self) -> "Suite":
        if len(self.contexts) > 1:
            raise ValueError(f"lengths: attention is measured at one, got {self.lengths}")
        return self

    @property
    def most_needles(self) -> int:
        """Number of needles in every prompt."""
        return self.needles

    def metric_names(self, model: ModelConfig) -> list[str]:
        """See `measure.measure`."""
        depths = (None, *self.depths)
        return [
            "prompts",
            *(share_name(region, depth) for depth in depths for region in (*REGIONS, NOISE)),
        ]
