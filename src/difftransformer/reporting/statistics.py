"""Confidence intervals, tests and power of paired differences; docs/verdicts.md derives them.

One seed gives no interval. Shapes: S = seeds, D = items (documents, questions or prompts).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONFIDENCE_LEVEL = 0.95
"""Coverage of the intervals in tables and figures."""

MIN_PAIRS = 3
"""Smallest number of paired seeds for a verdict."""

MAX_SEEDS = 1000
"""Largest number of seeds that is reported as needed to decide a claim."""

POWER = 0.8
"""Power for which the number of seeds needed is computed."""

Interval = tuple[float, float] | tuple[None, None]
"""Lower and upper end, or None and None if there is no interval."""

_ROUNDING = 1e-9


def wilson_interval(successes: int, n: int, level: float = CONFIDENCE_LEVEL) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion (1927), without continuity correction."""
    from scipy import stats

    interval = stats.binomtest(successes, n).proportion_ci(level, method="wilson")
    return float(interval.low), float(interval.high)


class ItemVariance(NamedTuple):
    """The part of a mean's variance that is due to the items, with its degrees of freedom."""

    variance: float
    df: int


NO_ITEM_VARIANCE = ItemVariance(0.0, 0)


def item_variance(contributions: "Sequence[NDArray[np.float64]]") -> ItemVariance:
    """Return the part of the variance of a mean over seeds and items that is due to the items.

    All seeds are evaluated on the same items (crossed design).

    The estimate uses the method of moments (Cornfield and Tukey 1956): the variance of the items'
    means over seeds, minus the variance of the interaction, which the variance over seeds includes
    already.

    Args:
        contributions: An array [S, D] per independent set of D items: the contribution of each
            item to each seed's difference, centered, so that a row sums to zero.
    """
    variance, df = 0.0, 0
    for part in contributions:
        seeds, items = part.shape
        if items < 2:
            continue  # one item does not tell how items differ
        means = part.mean(0)
        interaction = ((part - means) ** 2).sum() / (seeds * (seeds - 1)) if seeds > 1 else 0.0
        variance += items / (items - 1) * float((means**2).sum() - interaction)
        df += items - 1
    return ItemVariance(max(variance, 0.0), df)


@dataclass(frozen=True)
class Contrast:
    """The mean of a difference over S seeds, with its variance if there are at least two seeds.

    Attributes:
        effect: The mean difference.
        seeds: Number of seeds, S.
        seed_variance: Sample variance of the seeds' differences.
        item_variance: Variance that the choice of items adds to the mean.
    """

    effect: float
    seeds: int
    seed_variance: float
    item_variance: ItemVariance = NO_ITEM_VARIANCE

    @property
    def standard_error(self) -> float:
        """Standard error of the effect."""
        return math.sqrt(self.seed_variance / self.seeds + self.item_variance.variance)

    @property
    def df(self) -> float:
        """Degrees of freedom of the variance after Satterthwaite (1946), never below S - 1.

        The square of an estimated variance exceeds that of the true one by (S + 1) / (S - 1) on
        average. It is enlarged by this factor once more, because a mean square that is small by
        chance gives too many degrees of freedom and too small an error at once.
        """
        seeds = self.seeds
        seed_part = (self.seed_variance / seeds) ** 2 * (seeds + 1) / (seeds - 1) ** 2
        item_part = (
            self.item_variance.variance**2 / self.item_variance.df if self.item_variance.df else 0.0
        )
        if not seed_part + item_part:
            return seeds - 1.0
        return max(seeds - 1.0, self.standard_error**4 / (seed_part + item_part))

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation of the difference over seeds; None with one seed."""
        return math.sqrt(self.seed_variance) if self.seeds > 1 else None

    def interval(self, level: float = CONFIDENCE_LEVEL) -> Interval:
        """Return the two-sided t interval of the effect.

        There is none with one seed, or if nothing varies.
        """
        from scipy import stats

        if self.seeds < 2 or not self.standard_error:
            return None, None
        half_width = float(stats.t.ppf((1 + level) / 2, self.df)) * self.standard_error
        return self.effect - half_width, self.effect + half_width

    def above(self, value: float) -> float:
        """Return the one-sided p-value for the alternative of a true effect above ``value``."""
        from scipy import stats

        distance = self.effect - value
        if not self.standard_error:
            # All seeds agree to the last bit, so only an exact sign test is valid.
            return 1.0 if distance <= 0 else 0.5**self.seeds
        return float(stats.t.sf(distance / self.standard_error, self.df))

    def below(self, value: float) -> float:
        """Return the one-sided p-value for the alternative of a true effect below ``value``."""
        return Contrast(-self.effect, self.seeds, self.seed_variance, self.item_variance).above(
            -value
        )

    def beyond(self, value: float) -> float:
        """Return the two-sided p-value of the hypothesis that the true effect equals a value."""
        return min(1.0, 2 * min(self.above(value), self.below(value)))

    def with_seeds(self, seeds: int) -> "Contrast":
        """Return the contrast to be expected with another number of seeds.

        The effect and the variances are assumed to stay the same.
        """
        return Contrast(self.effect, seeds, self.seed_variance, self.item_variance)

    def power_beyond(self, value: float, alpha: float) -> float:
        """Return the power of a two-sided test at ``alpha`` that the effect is not ``value``."""
        from scipy import stats

        if not self.standard_error:
            return float(self.effect != value and 0.5 ** (self.seeds - 1) < alpha)
        critical = stats.t.ppf(1 - alpha / 2, self.df)
        shift = (self.effect - value) / self.standard_error
        # The other tail does not count: a wrong sign is no decision.
        return float(stats.nct.sf(critical, self.df, abs(shift)))

    def power_within(self, margin: float, alpha: float) -> float:
        """Return a lower bound of the probability that the effect's interval is within ±margin.

        The interval has level 1 - alpha.
        """
        from scipy import stats

        if not self.standard_error:
            return float(abs(self.effect) < margin and 0.5 ** (self.seeds - 1) < alpha)
        critical = stats.t.ppf(1 - alpha / 2, self.df)
        shifts = [(margin - sign * self.effect) / self.standard_error for sign in (1, -1)]
        powers = [float(stats.nct.sf(critical, self.df, shift)) for shift in shifts]
        return max(0.0, sum(powers) - 1)


class Paired(NamedTuple):
    """Paired differences of two models, [S], and the size below which they are rounding error."""

    differences: "NDArray[np.float64]"
    least: float


def subtract(ours: Sequence[float], theirs: Sequence[float] | float = 0.0) -> Paired:
    """Return the differences of two models' values seed by seed.

    Differences within rounding error become 0.
    """
    import numpy as np

    left, right = np.broadcast_arrays(np.asarray(ours, float), np.asarray(theirs, float))
    assert np.isfinite([left, right]).all()
    least = _ROUNDING * float(np.abs([left, right]).max())
    return Paired(np.where(np.abs(left - right) > least, left - right, 0.0), least)


def paired_contrast(
    ours: Sequence[float],
    theirs: Sequence[float] | float = 0.0,
    item_variance: ItemVariance = NO_ITEM_VARIANCE,
) -> Contrast:
    """Return the mean and variance of the paired differences of two models, one per seed.

    Differences, means and variances within rounding error become 0.
    """
    differences, least = subtract(ours, theirs)
    seeds = len(differences)
    mean = math.fsum(differences) / seeds
    variance = math.fsum((differences - mean) ** 2) / (seeds - 1) if seeds > 1 else 0.0
    return Contrast(
        mean if abs(mean) > least else 0.0,
        seeds,
        variance if variance > least**2 else 0.0,
        item_variance if item_variance.variance > least**2 else NO_ITEM_VARIANCE,
    )


class Survival(NamedTuple):
    """A Kaplan-Meier curve: the proportion of seeds without the event after each time."""

    times: "NDArray[np.float64]"
    shares: "NDArray[np.float64]"

    @property
    def median(self) -> float | None:
        """Time at which the curve falls below one half, None if it does not.

        If the curve equals one half over a range of times, the median is the middle of the range.
        """
        ends = [
            self.times[self.shares <= 0.5 + _ROUNDING],
            self.times[self.shares < 0.5 - _ROUNDING],
        ]
        return None if not ends[1].size else float(ends[0][0] + ends[1][0]) / 2


def survival(times: Sequence[float], censored: Sequence[float]) -> Survival:
    """Return the survival curve of an event over seeds, estimated after Kaplan and Meier (1958).

    Args:
        times: Time of the event for each seed that has it.
        censored: Time until which each of the other seeds had no event.
    """
    from scipy import stats

    curve = stats.ecdf(stats.CensoredData(times, right=censored)).sf
    return Survival(curve.quantiles, curve.probabilities)


class AdjustedP(NamedTuple):
    """An adjusted p-value, and the divisor of alpha in its step of Holm's correction."""

    p_value: float
    divisor: int


def holm(p_values: Sequence[float]) -> list[AdjustedP]:
    """Return p-values adjusted for a family of tests (Holm 1979).

    The family-wise error rate stays at most alpha.
    """
    corrected, worst = [AdjustedP(1.0, 1)] * len(p_values), 0.0
    ranked = sorted(range(len(p_values)), key=lambda index: p_values[index])
    for rank, index in enumerate(ranked):
        divisor = len(p_values) - rank
        worst = max(worst, min(1.0, divisor * p_values[index]))
        corrected[index] = AdjustedP(worst, divisor)
    return corrected
