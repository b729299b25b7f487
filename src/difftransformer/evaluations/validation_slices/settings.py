"""Settings of the validation loss evaluation."""

from typing import ClassVar, Literal

from difftransformer.config.base import setting
from difftransformer.config.evaluation import LossSuite, Ngrams
from difftransformer.config.evaluation import Options as BaseOptions


class Suite(LossSuite):
    """Suite of the validation loss, overall and in the slices AR-Hit and Others.

    AR-Hit: the predicted token ends an n-gram that occurred earlier in the same window and is not
    frequent in training. Others: all other tokens.
    """

    repeatable: ClassVar[bool] = True

    kind: Literal["validation_slices"] = setting(meaning="Which evaluation the suite is.")
    seq_len: int = setting(
        meaning="Positions of a window of the validation split; windows do not overlap, and in "
        "running text they cross document boundaries as in training.",
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
        "counts as Others.",
        unit="occurrences",
        source="not stated by arXiv 2410.05258; Zoology (Arora et al. 2023), unverified, for "
        "corpora of billions of tokens: scale it with the corpus",
        ge=0,
    )

    @property
    def ngrams(self) -> Ngrams:
        """Settings for counting the frequent n-grams, which count as Others."""
        return Ngrams(n=self.n, max_count=self.max_count)

    def metric_words(self, name: str) -> str:
        """Return the description of a metric for messages and tables."""
        return "validation loss, nats" if name == "loss" else super().metric_words(name)


class Options(BaseOptions):
    """Report options: the columns that claims may test."""

    claim_columns: ClassVar[tuple[str, ...]] = ("valid", "ar_hit", "others")
