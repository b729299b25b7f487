"""Intervals and tests over seeds, by scipy. Seeds are the units; nothing here sees tokens.

Small samples are taken as they are: with one seed there is no interval, and t intervals of two
seeds are as wide as they must be.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

LEVEL = 0.95
"""Coverage of the intervals in tables and figures."""

FEWEST_PAIRS = 3
"""Paired seeds below which no verdict is given."""


class Estimate(NamedTuple):
    """A mean over seeds; ``std``, ``low`` and ``high`` are None with fewer than two values."""

    mean: float
    std: float | None
    low: float | None
    high: float | None
    n: int


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """Mean, sample standard deviation and Student's t interval of the mean.

    Args:
        values: One number a seed, at least one.
        level: Two-sided coverage.
    """
    from scipy import stats

    n = len(values)
    assert n > 0
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, None, None, None, 1)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    reach = float(stats.t.ppf((1 + level) / 2, n - 1)) * std / math.sqrt(n)
    return Estimate(mean, std, mean - reach, mean + reach, n)


def wilson_interval(successes: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's score interval of a share (Wilson 1927), without continuity correction."""
    from scipy import stats

    interval = stats.binomtest(successes, n).proportion_ci(level, method="wilson")
    return float(interval.low), float(interval.high)


def t_test_p(estimate: Estimate, mean: float = 0.0) -> float:
    """Two-sided p-value of Student's t test that the true mean is ``mean``."""
    return min(1.0, 2 * min(t_test_above(estimate, mean), t_test_below(estimate, mean)))


def t_test_above(estimate: Estimate, mean: float) -> float:
    """One-sided p-value against the alternative that the true mean is above ``mean``."""
    return _upper_tail(estimate, estimate.mean - mean)


def t_test_below(estimate: Estimate, mean: float) -> float:
    """One-sided p-value against the alternative that the true mean is below ``mean``."""
    return _upper_tail(estimate, mean - estimate.mean)


def sign_test_p(wins: int, losses: int) -> float:
    """Exact two-sided p-value that wins and losses are equally likely; ties do not count.

    For yes-or-no outcomes of the same seeds this is McNemar's exact test.
    """
    from scipy import stats

    if wins + losses == 0:
        return 1.0
    return float(stats.binomtest(wins, wins + losses, 0.5).pvalue)


def fewest_deciding_seeds(alpha: float) -> int:
    """Smallest number of differing seeds with which a sign test can fall below ``alpha``."""
    n = 1
    while 2 * 0.5**n >= alpha:
        n += 1
    return n


def _upper_tail(estimate: Estimate, distance: float) -> float:
    from scipy import stats

    assert estimate.std is not None, "a t test needs two values"
    if estimate.std == 0:
        return 0.5 if distance == 0 else float(distance < 0)
    standard_error = estimate.std / math.sqrt(estimate.n)
    return float(stats.t.sf(distance / standard_error, estimate.n - 1))
