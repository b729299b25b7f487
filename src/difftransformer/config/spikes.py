"""Settings of training stability: what counts as a spike of a training curve."""

from difftransformer.config.base import Settings, setting


class SpikesConfig(Settings):
    """A spike: a step whose value stands out from those just before it, by robust statistics."""

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
