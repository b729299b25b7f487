"""What the units of a metric come to together."""

import math

from difftransformer.provenance.result import Share, Units

_ROUNDING = 1e-6  # relative; the metric is added up in another order


def total(units: Units) -> float:
    """Return the sum of the ratios, each times its coefficient: the metric.

    NaN where nothing has weight.
    """
    return math.fsum(share.coefficient * _ratio(share) for share in units.shares)


def adds_up(units: Units, value: float) -> bool:
    """Whether units make a metric's value, but for rounding."""
    return abs(total(units) - value) <= _ROUNDING * max(1.0, abs(value))


def _ratio(share: Share) -> float:
    weight = float(len(share.values)) if share.weights is None else math.fsum(share.weights)
    return math.fsum(share.values) / weight if weight else math.nan
