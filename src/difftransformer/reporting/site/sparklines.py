"""Sparklines of effects with their intervals."""

from math import log
from typing import NamedTuple

from difftransformer.reporting.verdicts import TestedContrast, Verdict

_WIDTH, _PADDING = 132.0, 6.0


class Sparkline(NamedTuple):
    """Horizontal positions in a small picture of an effect; its center is no effect.

    Ratios are on a logarithmic scale.
    """

    zero: float
    effect: float | None
    low: float | None
    high: float | None
    published: float | None
    margin: float | None


def sparkline(verdict: Verdict, contrast: TestedContrast) -> Sparkline | None:
    """Return the positions of a contrast's effect, interval, published effect and margin.

    None if the contrast has no effect estimate.
    """
    if contrast.effect is None:
        return None
    is_ratio = verdict.about.compare == "ratio"
    published = None if is_ratio else contrast.published
    values = (contrast.effect, contrast.ci_low, contrast.ci_high, published, verdict.about.margin)
    sizes = [log(value) if is_ratio and value else value for value in values]
    largest = max(abs(value) for value in sizes if value is not None) or 1.0
    center = _WIDTH / 2
    positions = [
        None if value is None else round(center + (center - _PADDING) * value / largest, 1)
        for value in sizes
    ]
    return Sparkline(center, *positions)
