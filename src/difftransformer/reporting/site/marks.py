"""Small pictures in a line of text: where an interval lies."""

from math import log
from typing import NamedTuple

from difftransformer.reporting.verdicts import TestedContrast, Verdict

_WIDTH, _MARGIN = 132.0, 6.0


class Mark(NamedTuple):
    """An effect on a line through none, in units of the picture; ratios by their logarithms."""

    zero: float
    effect: float | None
    low: float | None
    high: float | None
    published: float | None
    margin: float | None


def mark(verdict: Verdict, contrast: TestedContrast) -> Mark | None:
    """Place effect, interval and the published effect on a line of their own; None: no effect."""
    if contrast.effect is None:
        return None
    ratio = verdict.about.compare == "ratio"
    published = None if ratio else contrast.evidence.published
    values = (contrast.effect, contrast.ci_low, contrast.ci_high, published, verdict.about.margin)
    sizes = [log(one) if ratio and one else one for one in values]
    reach = max(abs(one) for one in sizes if one is not None) or 1.0
    half = _WIDTH / 2
    placed = [
        None if one is None else round(half + (half - _MARGIN) * one / reach, 1) for one in sizes
    ]
    return Mark(half, *placed)
