"""Options of a section on training stability."""

from typing import ClassVar, Literal

from difftransformer.config import evaluation
from difftransformer.config.base import setting

WINDOW = 50
"""Steps before a step whose median and median absolute deviation it is compared with; the first
ones of a run have too few before them and are left out. Ours; the DIFF V2 post defines no spike."""
THRESHOLD = 5.0
"""Robust standard deviations (1.4826 median absolute deviations) above the median from which on a
step is a spike. Ours; Gaussian noise has one in some millions of steps."""


class Options(evaluation.Options):
    """Which training runs a section shows."""

    suites: ClassVar[int] = 0

    by: Literal["learning_rate", "run"] = setting(
        meaning="A sweep, one column per learning rate; or each model at its own learning rate"
    )

    @property
    def claim_columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Columns that claims may name: spikes over the large rates of a sweep."""
        return ("loss_spikes_large", "gradient_spikes_large") if self.swept else ()

    @property
    def swept(self) -> bool:
        """Whether the section shows a sweep of learning rates."""
        return self.by == "learning_rate"

    @property
    def reads_histories(self) -> bool:
        """True: spikes are found in training curves."""
        return True
