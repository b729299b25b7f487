"""The test of a contrast of a claim, and the seeds that it needs; see docs/verdicts.md."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from difftransformer.config.registry import Claim, VerdictName
from difftransformer.reporting.censored import CensoredContrast, Observed, log_ratio
from difftransformer.reporting.evidence import Evidence
from difftransformer.reporting.statistics import (
    FEWEST_PAIRS,
    MOST_SEEDS,
    POWER,
    Contrast,
    UnitChance,
    contrast,
)


class Tested(NamedTuple):
    """A p-value, and the verdict that it is for; None: contrasts that decide differently."""

    p: float
    speaks_for: VerdictName | None


def contrast_of(claim: Claim, numbers: Evidence) -> Contrast | None:
    """Return the mean difference, or the mean log ratio, of a contrast; None: no seed has it."""
    if claim.compare == "ratio":
        return log_ratio(
            _observed(numbers.values, numbers.after),
            _observed(numbers.baseline_values, numbers.baseline_after),
        )
    pairs = [
        (one, two)
        for one, two in zip(numbers.values, numbers.baseline_values, strict=True)
        if one is not None and two is not None
    ]
    if not pairs:
        return None
    ours, theirs = zip(*pairs, strict=True)
    return contrast(ours, theirs, UnitChance(numbers.unit_variance, numbers.unit_freedom))


def run_test(claim: Claim, found: Contrast) -> Tested:
    """Test a contrast; p-values are two-sided, of both decisions that a test may come to."""
    sign = 1 if claim.direction == "higher" else -1
    margin = _margin(claim)
    claimed: VerdictName = "reproduced" if sign * found.effect > 0 else "opposite"
    if claim.test == "equivalence":
        within = min(1.0, 2 * max(found.above(-margin), found.below(margin)))
        outside = min(1.0, 2 * min(found.above(margin), found.below(-margin)))
        if within <= outside:
            return Tested(within, "no difference")
        return Tested(outside, claimed)
    boundary = -sign * margin
    above = sign * (found.effect - boundary) > 0
    return Tested(found.beyond(boundary), "reproduced" if above else "opposite")


def combine(claim: Claim, contrasts: Sequence[Tested]) -> Tested:
    """Test all contrasts of a claim together: each must be significant, so the largest p counts."""
    sides = {one.speaks_for for one in contrasts}
    p = max(one.p for one in contrasts)
    if len(sides) == 1:
        return Tested(p, sides.pop())
    if claim.mixed is not None and sides == {"reproduced", "opposite"}:
        return Tested(p, "mixed")
    return Tested(1.0, None)


def seeds_needed(claim: Claim, numbers: Evidence, alpha: float) -> int | None:
    """Seeds with which a test at ``alpha`` decides with 80% power, if all is as observed.

    None: the effect lies on the boundary, or the items alone leave it open however many seeds.
    """
    found = contrast_of(claim, numbers)
    assert found is not None, claim.question
    if isinstance(found, CensoredContrast):  # its middles are near enough for planning
        found = Contrast(found.effect, found.seeds, found.seed_variance)
    sign, margin = 1 if claim.direction == "higher" else -1, _margin(claim)

    def power(seeds: int) -> float:
        then = found.with_seeds(seeds)
        if claim.test == "equivalence" and abs(found.effect) <= margin:
            return then.power_within(margin, alpha)
        if claim.test == "equivalence":
            return then.power_beyond(math.copysign(margin, found.effect), alpha)
        return then.power_beyond(-sign * margin, alpha)

    if power(MOST_SEEDS) < POWER:
        return None
    low, high = 1, MOST_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return max(high, FEWEST_PAIRS)


def _margin(claim: Claim) -> float:
    """The margin in the unit of the contrast: of ratios its logarithm; 0 without one."""
    if claim.margin is None:
        return 0.0
    return math.log(claim.margin) if claim.compare == "ratio" else claim.margin


def _observed(values: Sequence[float | None], after: Sequence[float | None]) -> list[Observed]:
    return [
        Observed(before or 0.0, math.inf if value is None else value)
        for value, before in zip(values, after, strict=True)
    ]
