"""Settings of evaluation suites: what is measured on a trained model, and on how much."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from difftransformer.config.base import Settings, setting
from difftransformer.config.suites.base import SuiteSettings
from difftransformer.config.suites.outliers import Outliers


def _distinct(values: list[int]) -> list[int]:
    if len(set(values)) < len(values):
        raise ValueError(f"must be distinct, got {values}")
    return values


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
    needles: Annotated[list[Annotated[int, Field(gt=0)]], AfterValidator(_distinct)] = setting(
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


class NllByPosition(SuiteSettings):
    """Cumulative mean loss of held-out long documents by position (figure 4 of arXiv 2410.05258).

    One document is one window: its first ``length`` tokens, none before them, and the token after
    each as target. The value at position p is the mean over the targets 1 to p, then over the
    documents.
    """

    kind: Literal["nll_by_position"] = setting(meaning="Which measurement the suite is.")
    length: int = setting(
        meaning="Positions of a document that are read; shorter documents are left out.",
        unit="tokens",
        gt=1,
    )
    positions: int = setting(
        12,
        meaning="Positions with a metric, evenly spaced on a logarithmic axis from "
        "first_position to length; of equal ones one.",
        source="figure 4 has ten marks a curve",
        ge=2,
    )
    first_position: int = setting(
        16,
        meaning="The smallest of these positions: means over fewer targets say little.",
        unit="tokens",
        source="figure 4 starts at 100 of 64K",
        gt=0,
    )
    max_documents: int | None = setting(
        None,
        meaning="Documents taken, the first long enough of the validation split; null: all.",
        unit="documents",
        gt=0,
    )
    loss_chunk: int = setting(
        1024, meaning="Positions whose logits exist at one time.", unit="tokens", gt=0
    )

    @model_validator(mode="after")
    def _positions_lie_inside(self) -> "NllByPosition":
        if self.first_position >= self.length:
            raise ValueError(
                f"first_position {self.first_position} must be below length {self.length}"
            )
        return self

    @property
    def places(self) -> list[int]:
        """Positions with a metric, ascending; the last one is ``length``."""
        step = (self.length / self.first_position) ** (1 / (self.positions - 1))
        found = {round(self.first_position * step**index) for index in range(self.positions - 1)}
        return [*sorted(found - {self.length}), self.length]


SuiteConfig = Annotated[
    ValidationSlices | Recall | NllByPosition | Outliers, Field(discriminator="kind")
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
