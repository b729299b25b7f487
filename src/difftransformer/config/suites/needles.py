"""Settings of the suites that ask for needles, or look where a model attends when asked."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from difftransformer.config.base import setting
from difftransformer.config.needles import NeedlePrompts, Pair
from difftransformer.config.suites.base import SuiteSettings


class Needles(SuiteSettings, NeedlePrompts):
    """Multi-needle retrieval: the model generates greedily, and a needle counts as answered if its
    number occurs in the output. Prompts are lm-eval tasks of ours, one for each cell; they are
    answered one by one, whatever the batch size, so that each reuses what it shares with the last.
    """

    kind: Literal["needles"] = setting(meaning="Which measurement the suite is.")
    pairs: Annotated[list[Pair], Field(min_length=1)] = setting(
        meaning="Settings [N, R]: R of N needles are asked for, an accuracy each.",
        unit="needles",
        source="arXiv 2410.05258v2, table 2",
    )
    max_new_tokens: int | None = setting(
        None,
        meaning="Room for an answer; null: 1 in format recall, where each question is a prompt of "
        "its own, and 48 in text, where one question asks for R numbers.",
        unit="tokens",
        gt=0,
    )
    chunk: int = setting(
        4096, meaning="Positions of a prompt computed at one time.", unit="tokens", gt=0
    )
    timed_prompts: int = setting(
        16,
        meaning="Prompts generated a second time without sharing prefixes, to measure its speed-up "
        "(in the details, never among the metrics); 0: none.",
        unit="prompts",
        ge=0,
    )

    @property
    def most_needles(self) -> int:
        """Largest N."""
        return max(needles for needles, _ in self.pairs)


class AttentionAllocation(SuiteSettings, NeedlePrompts):
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
    chunk: int = setting(
        4096, meaning="Positions of a prompt computed at one time.", unit="tokens", gt=0
    )

    @model_validator(mode="after")
    def _one_length(self) -> "AttentionAllocation":
        if len(self.contexts) > 1:
            raise ValueError(f"lengths: attention is measured at one, got {self.lengths}")
        return self

    @property
    def most_needles(self) -> int:
        """Number of needles in every prompt."""
        return self.needles
