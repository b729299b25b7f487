"""Paired ratios of times that are known within intervals only, by maximum likelihood."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from difftransformer.reporting.statistics import LEVEL, Contrast, Interval, contrast

_FARTHEST = 20.0
_REACHES = [0.05 * 2**step for step in range(10)]
"""Logarithms of ratios between which an end of an interval is searched; beyond, it is infinite."""


class Observed(NamedTuple):
    """When an event happened: after one time, and not after another; inf: it did not yet."""

    after: float
    before: float


@dataclass(frozen=True)
class CensoredContrast(Contrast):
    """A mean of paired differences of which each is known to lie in an interval only.

    The differences are normal with unknown mean and variance; a mean is tested by the likelihood
    ratio L of its observed intervals over the maximum. ``t = sqrt((S - 1) (L**(2 / S) - 1))`` on
    S - 1 degrees of freedom is the paired t-test where every interval is a point.

    Attributes:
        lows: Where each difference begins, -inf where nothing is known.
        highs: Where it ends, inf likewise; at least one difference is bounded on a side.
    """

    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()

    @property
    def freedom(self) -> float:
        """Degrees of freedom: S - 1."""
        return self.seeds - 1.0

    def interval(self, level: float = LEVEL) -> Interval:
        """Means that a two-sided test does not reject; an end that is not known is infinite."""
        from scipy import optimize, stats

        if self.seeds < 2:
            return None, None
        critical = float(stats.t.ppf((1 + level) / 2, self.freedom))
        start = min(max(self._best[0], -_FARTHEST), _FARTHEST)
        ends = []
        for sign in (-1, 1):

            def inside(distance: float, sign: int = sign) -> float:
                return critical + sign * self._t(start + sign * distance)

            reach = next((one for one in _REACHES if inside(one) <= 0), math.inf)
            distance = optimize.brentq(inside, 0, reach) if math.isfinite(reach) else reach
            ends.append(float(start + sign * distance))
        return ends[0], ends[1]

    def above(self, value: float) -> float:
        """One-sided p-value against the alternative that the true mean is above a value."""
        from scipy import stats

        return float(stats.t.sf(self._t(value), self.freedom)) if self.seeds > 1 else 1.0

    def below(self, value: float) -> float:
        """One-sided p-value against the alternative that the true mean is below a value."""
        return 1.0 - self.above(value) if self.seeds > 1 else 1.0

    def _t(self, value: float) -> float:
        """Distance of the mean from a value, as a t statistic."""
        fitted, best = self._best
        excess = max(0.0, 2 * (best - self._likelihood(value)) / self.seeds)
        return math.copysign(math.sqrt((self.seeds - 1) * math.expm1(excess)), fitted - value)

    @cached_property
    def _best(self) -> tuple[float, float]:
        """The likeliest mean, and its log-likelihood."""
        from scipy import optimize

        start = self.effect, max(self.seed_variance, 1e-6)
        found = optimize.minimize(
            lambda one: -self._log_likelihood(one[0], math.exp(one[1])),
            [start[0], math.log(start[1]) / 2],
            method="Nelder-Mead",
            options={"xatol": 1e-6, "fatol": 1e-9},
        )
        return float(found.x[0]), -float(found.fun)

    def _likelihood(self, mean: float) -> float:
        """Log-likelihood of a mean at its best deviation."""
        from scipy import optimize

        found = optimize.minimize_scalar(
            lambda log: -self._log_likelihood(mean, math.exp(log)),
            bounds=(math.log(1e-4), math.log(1e3)),
            method="bounded",
        )
        return -float(found.fun)

    def _log_likelihood(self, mean: float, deviation: float) -> float:
        import numpy as np
        from scipy.special import log_ndtr

        low, high = (np.asarray(ends) for ends in (self.lows, self.highs))
        low, high = (low - mean) / deviation, (high - mean) / deviation
        # The lower tail has the precision: an interval in the upper one is turned over.
        turned = low > 0
        low, high = np.where(turned, -high, low), np.where(turned, -low, high)
        below, above = log_ndtr(low), log_ndtr(high)
        return float(np.sum(above + np.log1p(-np.exp(np.minimum(below - above, -1e-300)))))


def log_ratio(ours: Sequence[Observed], theirs: Sequence[Observed]) -> CensoredContrast | None:
    """Describe the logarithms of paired ratios of times that are known within intervals.

    A pair whose ratio has no bound tells nothing and is left out; None: no pair is left.

    Args:
        ours: When an event happened to each seed of a model.
        theirs: The same of the model it is compared with.
    """
    ends = [
        (_log(one.after, two.before, -math.inf), _log(one.before, two.after, math.inf))
        for one, two in zip(ours, theirs, strict=True)
    ]
    ends = [both for both in ends if any(map(math.isfinite, both))]
    if not ends:
        return None
    middles = contrast([_middle(low, high) for low, high in ends])
    lows, highs = zip(*ends, strict=True)
    found = CensoredContrast(
        middles.effect, middles.seeds, middles.seed_variance, lows=lows, highs=highs
    )
    bounded = any(all(map(math.isfinite, both)) for both in ends)
    return replace(found, effect=found._best[0]) if bounded else found


def _log(time: float, other: float, unknown: float) -> float:
    """Logarithm of a ratio of times; ``unknown`` where one of them is 0 or infinite."""
    known = all(0 < one < math.inf for one in (time, other))
    return math.log(time / other) if known else unknown


def _middle(low: float, high: float) -> float:
    """Middle of an interval; of one that is open on a side its end."""
    ends = [end for end in (low, high) if math.isfinite(end)]
    return math.fsum(ends) / len(ends)
