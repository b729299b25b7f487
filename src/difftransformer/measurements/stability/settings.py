"""What a section of training stability is told."""

from typing import ClassVar, Literal

from difftransformer.config import measurement
from difftransformer.config.base import setting


class Options(measurement.Options):
    """Which trainings are judged, and what counts as a spike of a curve.

    A spike is a step whose value stands out from those just before it, by robust statistics.
    """

    suites: ClassVar[int] = 0

    by: Literal["learning_rate", "run"] = setting(
        meaning="Sweep of learning rates, a column a rate; or each row at its own rate"
    )
    window: int = setting(
        50,
        meaning="Steps before a step whose median and median absolute deviation it is compared "
        "with; the first ones of a run have too few and are not judged",
        unit="steps",
        source="ours; the DIFF V2 post does not define a spike",
        gt=1,
    )
    threshold: float = setting(
        5.0,
        meaning="Robust standard deviations (1.4826 median absolute deviations) above the median "
        "from which on a step is a spike",
        source="ours; Gaussian noise has one in some millions of steps",
        gt=0,
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
