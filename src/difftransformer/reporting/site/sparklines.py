"""Sparklines that show an effect with its interval."""

from math import log
from typing import NamedTuple

from difftransformer.reporting.verdicts import TestedContrast, Verdict

_WIDTH, _MARGIN = 132.0, 6.0


class Sparkline(NamedTuple):
    """Positions on a line whose center is no effect, in units of the picture; ratios are logged."""

    zero: float
    effect: float | None
    low: float | None
    high: float | None
    published: float | None
    margin: float | None


def sparkline(verdict: Verdict, contrast: TestedContrast) -> Sparkline | None:
    """Return the positions of effect, interval, published effect and margin; None: no effect."""
    if contrast.effect is None:
        return None
    ratio = verdict.about.compare == "ratio"
    published = None if ratio else contrast.published
    values = (contrast.effect, contrast.ci_low, contrast.ci_high, published, verdict.about.margin)
    sizes = [log(value) if ratio and value else value for value in values]
    reach = max(abs(value) for value in sizes if value is not None) or 1.0
    half = _WIDTH / 2
    positions = [
        None if value is None else round(half + (half - _MARGIN) * value / reach, 1)
        for value in sizes
    ]
    return Sparkline(half, *positions)
