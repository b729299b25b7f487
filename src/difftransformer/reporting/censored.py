"""Ratios of paired interval-censored times, by the censored fits of scipy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from difftransformer.reporting.statistics import (
    CONFIDENCE_LEVEL,
    Contrast,
    Interval,
    paired_contrast,
)

_FARTHEST = 20.0
_REACHES = [0.05 * 2**step for step in range(10)]
"""Distances in log ratio at which the end of an interval is searched; beyond, it is infinite."""


class EventInterval(NamedTuple):
    """Interval that contains the time of an event: above `after`, at most `before`.

    ``before`` is infinite if the event has not occurred yet.
    """

    after: float
    before: float


@dataclass(frozen=True)
class CensoredContrast(Contrast):
    """Mean of S paired differences, each known only to lie in an interval.

    The differences are normal with unknown mean and variance. A mean is tested by L, the maximum
    likelihood of the intervals over their likelihood at that mean.
    ``t = sqrt((S - 1) (L**(2 / S) - 1))`` on S - 1 degrees of freedom is the paired t-test where
    every interval is a point.

    Attributes:
        lows: Lower end of each difference's interval, -inf if it is unbounded below.
        highs: Upper end of each, inf if it is unbounded above; one of the two ends is finite.
    """

    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()

    @property
    def df(self) -> float:
        """Degrees of freedom of the t-test: S - 1."""
        return self.seeds - 1.0

    def interval(self, level: float = CONFIDENCE_LEVEL) -> Interval:
        """Return the confidence interval of the mean; its ends may be infinite.

        It has the means that a two-sided test does not reject.
        """
        from scipy import optimize, stats

        if self.seeds < 2:
            return None, None
        critical = float(stats.t.ppf((1 + level) / 2, self.df))
        start = min(max(self._best[0], -_FARTHEST), _FARTHEST)
        ends = []
        for sign in (-1, 1):

            def inside(distance: float, sign: int = sign) -> float:
                return critical + sign * self._t(start + sign * distance)

            reach = next((candidate for candidate in _REACHES if inside(candidate) <= 0), math.inf)
            distance = optimize.brentq(inside, 0, reach) if math.isfinite(reach) else reach
            ends.append(float(start + sign * distance))
        return ends[0], ends[1]

    def above(self, value: float) -> float:
        """Return the one-sided p-value for the alternative that the true mean is above a value."""
        from scipy import stats

        return float(stats.t.sf(self._t(value), self.df)) if self.seeds > 1 else 1.0

    def below(self, value: float) -> float:
        """Return the one-sided p-value for the alternative that the true mean is below a value."""
        return 1.0 - self.above(value) if self.seeds > 1 else 1.0

    def _t(self, value: float) -> float:
        """Signed t statistic of the likelihood ratio at a mean, see the class."""
        fitted, best = self._best
        excess = max(0.0, 2 * (best - self._likelihood(value)) / self.seeds)
        return math.copysign(math.sqrt((self.seeds - 1) * math.expm1(excess)), fitted - value)

    @cached_property
    def _best(self) -> tuple[float, float]:
        """Maximum-likelihood estimate of the mean, and its log-likelihood."""
        return self._fit()

    def _likelihood(self, mean: float) -> float:
        """Profile log-likelihood of a mean, maximized over the standard deviation."""
        return self._fit(floc=mean)[1]

    def _fit(self, **fixed: float) -> tuple[float, float]:
        """Fit the normal distribution to the intervals; return its mean and log-likelihood."""
        from scipy import optimize, stats

        def precise(*start: Any, args: Any, disp: Any) -> Any:
            return optimize.fmin(*start, args=args, disp=disp, xtol=1e-6, ftol=1e-9)

        data = stats.CensoredData.interval_censored(self.lows, self.highs)
        # From too small a deviation every interval has a likelihood of zero, where a fit ends.
        away = self.effect - fixed.get("floc", self.effect)
        scale = max(math.sqrt(self.seed_variance + away**2), 1e-3)
        options = {"loc": self.effect, "scale": scale, "optimizer": precise, **fixed}
        mean, deviation = map(float, stats.norm.fit(data, **options))
        return mean, self._log_likelihood(mean, deviation)

    def _log_likelihood(self, mean: float, deviation: float) -> float:
        import numpy as np
        from scipy.special import log_ndtr

        low, high = (np.asarray(ends) for ends in (self.lows, self.highs))
        low, high = (low - mean) / deviation, (high - mean) / deviation
        # log_ndtr is precise in the lower tail, so intervals in the upper tail are mirrored.
        turned = low > 0
        low, high = np.where(turned, -high, low), np.where(turned, -low, high)
        below, above = log_ndtr(low), log_ndtr(high)
        return float(np.sum(above + np.log1p(-np.exp(np.minimum(below - above, -1e-300)))))


def log_ratio(
    ours: Sequence[EventInterval], theirs: Sequence[EventInterval]
) -> CensoredContrast | None:
    """Return the mean log ratio of paired interval-censored times, or None if no pair is bounded.

    A pair whose ratio has no finite bound is left out.

    Args:
        ours: Interval of the event's time for each seed of a model.
        theirs: Interval for each seed of the baseline, in the same order of seeds.
    """
    ends = [
        (
            _log(ours_at.after, theirs_at.before, -math.inf),
            _log(ours_at.before, theirs_at.after, math.inf),
        )
        for ours_at, theirs_at in zip(ours, theirs, strict=True)
    ]
    ends = [both for both in ends if any(map(math.isfinite, both))]
    if not ends:
        return None
    middles = paired_contrast([_middle(low, high) for low, high in ends])
    lows, highs = zip(*ends, strict=True)
    fitted = CensoredContrast(
        middles.effect, middles.seeds, middles.seed_variance, lows=lows, highs=highs
    )
    bounded = any(all(map(math.isfinite, both)) for both in ends)
    return replace(fitted, effect=fitted._best[0]) if bounded else fitted


def _log(time: float, baseline: float, unbounded: float) -> float:
    """Logarithm of a ratio of times; ``unbounded`` if a time is 0 or infinite."""
    bounded = all(0 < number < math.inf for number in (time, baseline))
    return math.log(time / baseline) if bounded else unbounded


def _middle(low: float, high: float) -> float:
    """Middle of an interval, or its finite end if only one end is finite."""
    ends = [end for end in (low, high) if math.isfinite(end)]
    return math.fsum(ends) / len(ends)
