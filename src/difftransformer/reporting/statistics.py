"""Intervals, tests and power of paired differences, by scipy; docs/verdicts.md derives them.

Small samples are taken as they are: with one seed there is no interval, and t intervals of two
seeds are as wide as they must be.

Shapes: S = seeds, D = units (documents, items or prompts) that every seed was asked.
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
"""Paired seeds below which no verdict is given."""

MAX_SEEDS = 1000
"""Seeds beyond which nobody would go to decide a claim."""

POWER = 0.8
"""Chance of a decision that the seeds needed are counted for."""

Interval = tuple[float, float] | tuple[None, None]
"""Both ends, or none where nothing is known of them."""

_ROUNDING = 1e-9


def wilson_interval(successes: int, n: int, level: float = CONFIDENCE_LEVEL) -> tuple[float, float]:
    """Wilson's score interval of a share (Wilson 1927), without continuity correction."""
    from scipy import stats

    interval = stats.binomtest(successes, n).proportion_ci(level, method="wilson")
    return float(interval.low), float(interval.high)


class ItemVariance(NamedTuple):
    """What the choice of units adds to the variance of a mean over seeds and units."""

    variance: float
    df: int


NO_ITEM_VARIANCE = ItemVariance(0.0, 0)


def item_variance(parts: "Sequence[NDArray[np.float64]]") -> ItemVariance:
    """Variance of a mean over crossed seeds and units that is due to the units alone.

    By moments (Cornfield and Tukey 1956): the variance of the units' means over seeds, less the
    part of it that is the interaction, which the variance over seeds holds already.

    Args:
        parts: Independent sets of units, [S, D] each: what each unit adds to each seed's
            difference, centered, so that a row sums to zero.
    """
    variance, df = 0.0, 0
    for part in parts:
        seeds, units = part.shape
        if units < 2:
            continue  # of one unit nobody knows how it differs from others
        means = part.mean(0)
        interaction = ((part - means) ** 2).sum() / (seeds * (seeds - 1)) if seeds > 1 else 0.0
        variance += units / (units - 1) * float((means**2).sum() - interaction)
        df += units - 1
    return ItemVariance(max(variance, 0.0), df)


@dataclass(frozen=True)
class Contrast:
    """A mean difference over S seeds with all the chance that is in it, known from two on.

    Attributes:
        effect: The mean.
        seeds: S.
        seed_variance: Sample variance of the seeds' differences.
        item_variance: Variance that the choice of items adds.
    """

    effect: float
    seeds: int
    seed_variance: float
    item_variance: ItemVariance = NO_ITEM_VARIANCE

    @property
    def standard_error(self) -> float:
        """Root of the variance of the effect."""
        return math.sqrt(self.seed_variance / self.seeds + self.item_variance.variance)

    @property
    def df(self) -> float:
        """Degrees of freedom after Satterthwaite (1946), never below S - 1.

        The square of an estimated variance exceeds that of the true one by (S + 1) / (S - 1) on
        average; it is enlarged by it once more, for a mean square that is small by chance gives
        too many degrees and too small an error at once.
        """
        seeds = self.seeds
        of_seeds = (self.seed_variance / seeds) ** 2 * (seeds + 1) / (seeds - 1) ** 2
        of_units = (
            self.item_variance.variance**2 / self.item_variance.df if self.item_variance.df else 0.0
        )
        if not of_seeds + of_units:
            return seeds - 1.0
        return max(seeds - 1.0, self.standard_error**4 / (of_seeds + of_units))

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over seeds; None of one."""
        return math.sqrt(self.seed_variance) if self.seeds > 1 else None

    def interval(self, level: float = CONFIDENCE_LEVEL) -> Interval:
        """Two-sided t interval of the effect; none of one seed, nor where nothing varies."""
        from scipy import stats

        if self.seeds < 2 or not self.standard_error:
            return None, None
        reach = float(stats.t.ppf((1 + level) / 2, self.df)) * self.standard_error
        return self.effect - reach, self.effect + reach

    def above(self, value: float) -> float:
        """One-sided p-value against the alternative that the true effect is above a value."""
        from scipy import stats

        distance = self.effect - value
        if not self.standard_error:
            # All seeds agree to the last bit: an exact sign test is what they are worth.
            return 1.0 if distance <= 0 else 0.5**self.seeds
        return float(stats.t.sf(distance / self.standard_error, self.df))

    def below(self, value: float) -> float:
        """One-sided p-value against the alternative that the true effect is below a value."""
        return Contrast(-self.effect, self.seeds, self.seed_variance, self.item_variance).above(
            -value
        )

    def beyond(self, value: float) -> float:
        """Two-sided p-value that the true effect is a value."""
        return min(1.0, 2 * min(self.above(value), self.below(value)))

    def with_seeds(self, seeds: int) -> "Contrast":
        """Return what would be found with other seeds if effect and variances are as observed."""
        return Contrast(self.effect, seeds, self.seed_variance, self.item_variance)

    def power_beyond(self, value: float, alpha: float) -> float:
        """Chance that a two-sided test at ``alpha`` tells the effect from a value."""
        from scipy import stats

        if not self.standard_error:
            return float(self.effect != value and 0.5 ** (self.seeds - 1) < alpha)
        critical = stats.t.ppf(1 - alpha / 2, self.df)
        shift = (self.effect - value) / self.standard_error
        # The other tail is of no use: nobody counts a wrong sign as a decision.
        return float(stats.nct.sf(critical, self.df, abs(shift)))

    def power_within(self, margin: float, alpha: float) -> float:
        """Chance that an interval of 1 - alpha lies within ±margin, at least."""
        from scipy import stats

        if not self.standard_error:
            return float(abs(self.effect) < margin and 0.5 ** (self.seeds - 1) < alpha)
        critical = stats.t.ppf(1 - alpha / 2, self.df)
        shifts = [(margin - sign * self.effect) / self.standard_error for sign in (1, -1)]
        powers = [float(stats.nct.sf(critical, self.df, shift)) for shift in shifts]
        return max(0.0, sum(powers) - 1)


class Paired(NamedTuple):
    """Differences of two rows, [S], and below what size a number is left by rounding."""

    differences: "NDArray[np.float64]"
    least: float


def subtract(ours: Sequence[float], theirs: Sequence[float] | float = 0.0) -> Paired:
    """Subtract seed by seed; what rounding leaves of equal numbers is 0."""
    import numpy as np

    one, two = np.broadcast_arrays(np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float))
    assert np.isfinite([one, two]).all()
    least = _ROUNDING * float(np.abs([one, two]).max())
    return Paired(np.where(np.abs(one - two) > least, one - two, 0.0), least)


def paired_contrast(
    ours: Sequence[float],
    theirs: Sequence[float] | float = 0.0,
    item_variance: ItemVariance = NO_ITEM_VARIANCE,
) -> Contrast:
    """Describe paired differences, one a seed.

    What is left of equal numbers by rounding is none: neither a difference, nor a mean of them,
    nor a variance.
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
    """Share of seeds to which an event has not happened yet: what it is from each time on."""

    times: "NDArray[np.float64]"
    shares: "NDArray[np.float64]"

    @property
    def median(self) -> float | None:
        """Time at which it falls below a half; the middle of the times for which it is one."""
        ends = [
            self.times[self.shares <= 0.5 + _ROUNDING],
            self.times[self.shares < 0.5 - _ROUNDING],
        ]
        return None if not ends[1].size else float(ends[0][0] + ends[1][0]) / 2


def survival(times: Sequence[float], censored: Sequence[float]) -> Survival:
    """Estimate it after Kaplan and Meier (1958).

    Args:
        times: When it happened.
        censored: Until when it had not happened to each of the other seeds.
    """
    from scipy import stats

    found = stats.ecdf(stats.CensoredData(times, right=censored)).sf
    return Survival(found.quantiles, found.probabilities)


class AdjustedP(NamedTuple):
    """An adjusted p-value, and by what alpha is divided for it."""

    p_value: float
    share: int


def holm(p_values: Sequence[float]) -> list[AdjustedP]:
    """Correct a family (Holm 1979): the chance of any false decision stays alpha."""
    corrected, worst = [AdjustedP(1.0, 1)] * len(p_values), 0.0
    ranked = sorted(range(len(p_values)), key=lambda place: p_values[place])
    for rank, place in enumerate(ranked):
        share = len(p_values) - rank
        worst = max(worst, min(1.0, share * p_values[place]))
        corrected[place] = AdjustedP(worst, share)
    return corrected
