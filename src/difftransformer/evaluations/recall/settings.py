"""Settings of the key-value retrieval evaluation: suite and report options."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from difftransformer.config import evaluation
from difftransformer.config.base import distinct, setting
from difftransformer.config.evaluation import Reading
from difftransformer.config.generated_rows import GeneratedRows, RecallConfig
from difftransformer.models.config import ModelConfig

AT_BUDGET = "accuracy_at_budget"
"""Id of the column with the accuracy at a budget of training tokens."""

PairCounts = Annotated[list[Annotated[int, Field(gt=0)]], AfterValidator(distinct)]

ROWS_SEED = 20_001
"""Seed of the rows, the same for every run and seed; no training split has this seed."""


def accuracy_metric(needles: int) -> str:
    """Return the name of the accuracy metric (and column) for N pairs, also of training probes."""
    return f"accuracy_n{needles}"


class Suite(evaluation.Suite):
    """Suite of key-value retrieval: accuracy by the number of needles N in a row.

    An answer is the argmax over the whole vocabulary; earlier queries of a row are followed by
    their correct answers (teacher forcing).
    """

    repeatable: ClassVar[bool] = True

    kind: Literal["recall"] = setting(meaning="Which evaluation the suite is.")
    needles: PairCounts = setting(
        meaning="Numbers N of key-value pairs in a row, an accuracy each; more than the dataset's "
        "max_needles is out of distribution.",
        unit="pairs",
        min_length=1,
    )
    queries: int = setting(2, meaning="Queries R at the end of a row.", unit="queries", gt=0)
    samples: int = setting(256, meaning="Rows for each N.", unit="rows", gt=0)
    haystack_length: int | None = setting(
        None,
        meaning="Tokens before the first query; null: as in the training rows.",
        unit="tokens",
        gt=0,
    )

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """Return why the dataset or a model's context does not fit the suite, or None."""
        if not isinstance(rows, RecallConfig):
            return "the dataset has no recall rows: leave the suite out, or train the run on one"
        length = (self.haystack_length or rows.haystack_length) + 2 * self.queries - 1
        if length > max_positions:
            return (
                f"haystack_length, queries: rows of {length} positions are longer than its "
                f"max_positions {max_positions}"
            )
        return None

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return the sizes that determine the suite's memory: a batch of rows."""
        rows = self.batch_size * self.queries
        return Reading(self.batch_size, longest, longest, rows, self.lower())

    def metric_words(self, name: str) -> str:
        """Return the description of a metric for messages and tables."""
        words = {accuracy_metric(n): f"retrieval accuracy, N = {n}" for n in self.needles}
        return words.get(name) or super().metric_words(name)


class Options(evaluation.Options):
    """Report options: the training budget at which accuracies are compared."""

    budget: int | None = setting(
        None,
        meaning="Training tokens at which the accuracies of the last probes are compared; null: no "
        "such column.",
        unit="tokens",
        gt=0,
    )

    @property
    def claim_columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Ids of the columns that claims may test: steps to learn, and accuracy at the budget."""
        return ("steps_to_learn", *([] if self.budget is None else [AT_BUDGET]))

    @property
    def reads_histories(self) -> bool:
        """Whether the section reads training histories: if it has a budget."""
        return self.budget is not None
