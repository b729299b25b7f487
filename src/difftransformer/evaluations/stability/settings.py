"""What a section of training stability is told."""

from typing import ClassVar, Literal

from difftransformer.config import evaluation
from difftransformer.config.base import setting

WINDOW = 50
"""Steps before a step whose median and median absolute deviation it is compared with; the first
ones of a run have too few and are not judged. Ours; the DIFF V2 post does not define a spike."""
THRESHOLD = 5.0
"""Robust standard deviations (1.4826 median absolute deviations) above the median from which on a
step is a spike. Ours; Gaussian noise has one in some millions of steps."""


class Options(evaluation.Options):
    """Which trainings are judged."""

    suites: ClassVar[int] = 0

    by: Literal["learning_rate", "run"] = setting(
        meaning="Sweep of learning rates, a column a rate; or each row at its own rate"
    )

    @property
    def claim_columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Spikes over the large rates of a sweep."""
        return ("loss_spikes_large", "gradient_spikes_large") if self.swept else ()

    @property
    def swept(self) -> bool:
        """Whether it is by learning rate."""
        return self.by == "learning_rate"

    @property
    def reads_histories(self) -> bool:
        """Spikes are in the curves."""
        return True
