"""Settings of evaluation suites: what is measured on a trained model, and on how much."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from difftransformer.config.base import Settings, setting
from difftransformer.config.needles import NeedlePrompts, Pair, distinct


class SuiteSettings(Settings):
    """What every suite has: how the model is run, none of which changes what is measured."""

    batch_size: int = setting(32, meaning="Sequences held in memory.", unit="sequences", gt=0)
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto",
        meaning="Where to evaluate; auto picks CUDA where there is one, logs and records it.",
    )
    backend: Literal["auto", "eager", "blocked", "sdpa", "flash_attn"] = setting(
        "auto", meaning="Attention implementation; auto picks, logs and records its choice."
    )
    precision: Literal["fp32", "bf16"] = setting(
        "fp32", meaning="bf16: autocast with fp32 weights; sums are float64 under both."
    )


class ValidationSlices(SuiteSettings):
    """Validation loss, overall and in the slices AR-Hit and Others.

    AR-Hit: the predicted token is the last one of an n-gram that already occurred earlier in the
    same window and is not frequent in training. Others: every other token.
    """

    kind: Literal["validation_slices"] = setting(meaning="Which measurement the suite is.")
    seq_len: int = setting(
        meaning="Positions of a window of the validation split; windows do not overlap, and in "
        "running text they cross document boundaries as in training.",
        unit="tokens",
        gt=0,
    )
    max_tokens: int | None = setting(
        None,
        meaning="Predicted tokens, rounded down to whole windows; null: the whole split.",
        unit="tokens",
        gt=0,
    )
    n: int = setting(
        2,
        meaning="Length of the n-grams.",
        unit="tokens",
        source="not stated by arXiv 2410.05258; bigrams after Zoology (Arora et al. 2023), "
        "unverified",
        ge=2,
    )
    max_count: int = setting(
        1250,
        meaning="An n-gram seen more often than this in the training split is frequent and "
        "counts among Others.",
        unit="occurrences",
        source="not stated by arXiv 2410.05258; Zoology (Arora et al. 2023), unverified, for "
        "corpora of billions of tokens: scale it with the corpus",
        ge=0,
    )
    loss_chunk: int = setting(
        1024, meaning="Positions whose logits exist at one time.", unit="tokens", gt=0
    )


class Recall(SuiteSettings):
    """Accuracy of key-value retrieval by the number of needles N in a row.

    The model answers with its first choice among the whole vocabulary at each answer position,
    teacher-forced: earlier queries of a row are followed by their right answers.
    """

    kind: Literal["recall"] = setting(meaning="Which measurement the suite is.")
    needles: Annotated[list[Annotated[int, Field(gt=0)]], AfterValidator(distinct)] = setting(
        meaning="Numbers N of key-value pairs in a row, an accuracy each; more than the dataset's "
        "max_needles is out of distribution.",
        unit="pairs",
        min_length=1,
    )
    queries: int = setting(2, meaning="Queries R at the end of a row.", unit="queries", gt=0)
    samples: int = setting(256, meaning="Rows for each N.", unit="rows", gt=0)
    haystack_length: int | None = setting(
        None,
        meaning="Tokens before the first query; null: that of the training rows, so that queries "
        "start where they did there.",
        unit="tokens",
        gt=0,
    )
    rows_seed: int = setting(
        20_001,
        meaning="Seed of the rows: the same rows for every run and seed, so that differences are "
        "paired; never those of a training split.",
        ge=0,
    )


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

    @property
    def most_needles(self) -> int:
        """Number of needles in every prompt."""
        return self.needles


SuiteConfig = Annotated[
    ValidationSlices | Recall | Needles | AttentionAllocation, Field(discriminator="kind")
]
"""Any suite; a kind's measurement is ``difftransformer.evaluation.<kind>.measure``."""


def suite_module(kind: str) -> str:
    """Name of the module with a kind's ``measure``: loaded by name, so fingerprints add it."""
    return f"difftransformer.evaluation.{kind}"


class EvaluationSlice(Settings):
    """One suite on one run at one scale, resolved: nothing in it refers to another entry."""

    scale: str = setting(meaning="Name of the scale the run was resolved at.")
    run: str = setting(meaning="Name of the run in runs.yaml.")
    suite: str = setting(meaning="Name of the suite in evaluations.yaml.")
    config: SuiteConfig = setting(meaning="What the suite measures.")
