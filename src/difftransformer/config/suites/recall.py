"""Settings of the suite of key-value retrieval."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from difftransformer.config.base import setting
from difftransformer.config.suites.base import SuiteSettings, distinct


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
