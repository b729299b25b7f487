"""Settings of the adaptation evaluation: loss on the target and on the source text."""

from typing import ClassVar, Literal

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import LossSuite


class Suite(LossSuite):
    """Suite of the loss on held-out text of a given dataset, whatever data a run was trained on."""

    measures_pretrained: ClassVar[bool] = True
    kind: Literal["adaptation"] = setting(meaning="Which evaluation the suite is.")
    dataset: str = setting(
        meaning="Dataset of datasets.yaml whose held-out text is read; it must share the run's "
        "tokenizer."
    )

    def read_dataset(self, *, pretrained: bool) -> str:
        """Return the name of the dataset whose held-out text is read."""
        return self.dataset


class Options(evaluation.Options):
    """Report options: losses at each model's learning rate, over a sweep, or by tokens."""

    suites: ClassVar[int] = 2
    """Number of suites of a section: one on the target text, then one on the source text."""

    by: Literal["run", "learning_rate", "tokens"] = setting(
        "run",
        meaning="Each method at its own learning rate, or a curve per method: over a sweep of "
        "rates, or over a size grid of recipes with more and more tokens",
    )

    @property
    def claim_columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Ids of the columns that claims may test.

        They are both losses, or for a sweep the target loss at equal source loss.
        """
        return ("target_at_equal_source",) if self.swept else ("target", "source")

    @property
    def needs_size_grid(self) -> bool:  # type: ignore[override]
        """Whether the section needs a size grid, a run for each recipe: for losses by tokens."""
        return self.by == "tokens"

    @property
    def swept(self) -> bool:
        """Whether the section shows a sweep of learning rates."""
        return self.by == "learning_rate"
