"""Spikes of a training curve: values far above those just before them."""

from collections.abc import Sequence
from statistics import median

_ROBUST = 1.4826  # a normal distribution's standard deviation over its median absolute deviation


def spikes(values: Sequence[float], window: int, threshold: float) -> list[int]:
    """Return the places of the spikes in ``values``, ascending.

    A value is a spike if it exceeds the median of the ``window`` values before it by more than
    ``threshold`` of their robust standard deviations (1.4826 median absolute deviations). The first
    ``window`` values have too few before them and are not judged. Both statistics shrug off up to
    half of the window, so a spike does not hide the next one.

    Args:
        values: One value a step, without gaps.
        window: Steps before a value that it is compared with.
        threshold: Robust standard deviations.
    """
    assert window > 0, window
    found = []
    for place in range(window, len(values)):
        before = values[place - window : place]
        middle = median(before)
        spread = _ROBUST * median(abs(value - middle) for value in before)
        if values[place] > middle + threshold * spread:
            found.append(place)
    return found
