"""Report options of a section on training stability."""

from typing import ClassVar, Literal

from difftransformer.config import evaluation
from difftransformer.config.base import setting

WINDOW = 50
"""Number of preceding steps whose median and median absolute deviation a step is compared with. The
first steps of a run have too few before them and are left out. Our choice; the DIFF V2 post defines
no spike."""
THRESHOLD = 5.0
"""Robust standard deviations (1.4826 median absolute deviations) above the median, beyond which a
step is a spike. Our choice; Gaussian noise has one such step in some millions."""


class Options(evaluation.Options):
    """Report options: a sweep of learning rates, or each model at its own learning rate."""

    suites: ClassVar[int] = 0

    by: Literal["learning_rate", "run"] = setting(
        meaning="A sweep, one column per learning rate; or each model at its own learning rate"
    )

    @property
    def claim_columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Ids of the columns that claims may test: spikes over the large rates of a sweep."""
        return ("loss_spikes_large", "gradient_spikes_large") if self.swept else ()

    @property
    def swept(self) -> bool:
        """Whether the section shows a sweep of learning rates."""
        return self.by == "learning_rate"

    @property
    def reads_histories(self) -> bool:
        """Whether the section reads training histories: always true."""
        return True
