"""What is asked about learning and forgetting."""

from typing import ClassVar, Literal

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import LossSuite


class Suite(LossSuite):
    """Loss on the held-out text of a dataset, whatever a run was trained on."""

    measures_pretrained: ClassVar[bool] = True
    kind: Literal["adaptation"] = setting(meaning="Which evaluation the suite is.")
    dataset: str = setting(
        meaning="Dataset of datasets.yaml whose held-out text is read; its token ids are the run's."
    )

    def read_dataset(self, *, foreign: bool) -> str:
        """See `Suite.read_dataset`."""
        return self.dataset


class Options(evaluation.Options):
    """Which runs are shown: each at its own learning rate, at those of a sweep, or by tokens."""

    suites: ClassVar[int] = 2
    """That of the new text, then that of the old."""

    by: Literal["run", "learning_rate", "tokens"] = setting(
        "run",
        meaning="Each row at its own rate, or a curve for each row: over a sweep of rates, or over "
        "a family of setups with more and more tokens",
    )

    @property
    def claim_columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Both losses, or that on the new text where as much is forgotten."""
        return ("new_at_equal_old",) if self.swept else ("new", "old")

    @property
    def needs_family(self) -> bool:  # type: ignore[override]
        """By tokens it does."""
        return self.by == "tokens"

    @property
    def swept(self) -> bool:
        """Whether it is by learning rate."""
        return self.by == "learning_rate"
