"""Tests of the contrasts of a claim, and the number of seeds they need; see docs/verdicts.md."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from difftransformer.config.registry import Claim, VerdictName
from difftransformer.reporting.censored import CensoredContrast, EventInterval, log_ratio
from difftransformer.reporting.evidence import Evidence
from difftransformer.reporting.statistics import (
    MAX_SEEDS,
    MIN_PAIRS,
    POWER,
    Contrast,
    ItemVariance,
    paired_contrast,
)


class TestResult(NamedTuple):
    """A p-value and the verdict that it supports.

    The verdict is None if a claim's contrasts support different verdicts.
    """

    p: float
    speaks_for: VerdictName | None


def estimate_contrast(claim: Claim, numbers: Evidence) -> Contrast | None:
    """Return the estimated mean difference or mean log ratio of a contrast.

    None means that no seed has both values.
    """
    if claim.compare == "ratio":
        return log_ratio(
            _observed(numbers.values, numbers.lower_bounds),
            _observed(numbers.baseline_values, numbers.baseline_lower_bounds),
        )
    pairs = [
        (value, baseline)
        for value, baseline in zip(numbers.values, numbers.baseline_values, strict=True)
        if value is not None and baseline is not None
    ]
    if not pairs:
        return None
    ours, theirs = zip(*pairs, strict=True)
    return paired_contrast(ours, theirs, ItemVariance(numbers.item_variance, numbers.item_df))


def run_test(claim: Claim, observed: Contrast) -> TestResult:
    """Return the result of testing one contrast of a claim.

    p is two-sided, for the decision that the data favor.
    """
    sign = 1 if claim.direction == "higher" else -1
    margin = _margin(claim)
    claimed: VerdictName = "reproduced" if sign * observed.effect > 0 else "opposite"
    if claim.test == "equivalence":
        within = min(1.0, 2 * max(observed.above(-margin), observed.below(margin)))
        outside = min(1.0, 2 * min(observed.above(margin), observed.below(-margin)))
        if within <= outside:
            return TestResult(within, "no difference")
        return TestResult(outside, claimed)
    boundary = -sign * margin
    above = sign * (observed.effect - boundary) > 0
    return TestResult(observed.beyond(boundary), "reproduced" if above else "opposite")


def combine_tests(claim: Claim, contrasts: Sequence[TestResult]) -> TestResult:
    """Return the test result of a claim from all its contrasts: the largest p counts.

    Each contrast must be significant.
    """
    sides = {test.speaks_for for test in contrasts}
    p = max(test.p for test in contrasts)
    if len(sides) == 1:
        return TestResult(p, sides.pop())
    if claim.mixed is not None and sides == {"reproduced", "opposite"}:
        return TestResult(p, "mixed")
    return TestResult(1.0, None)


def seeds_needed(claim: Claim, numbers: Evidence, alpha: float) -> int | None:
    """Return the number of seeds for 80% power at ``alpha``, or None if no number is enough.

    Effect and variance are taken as observed. No number is enough if the effect is on the boundary
    or the items vary too much.
    """
    observed = estimate_contrast(claim, numbers)
    assert observed is not None, claim.question
    if isinstance(observed, CensoredContrast):  # interval midpoints are precise enough for planning
        observed = Contrast(observed.effect, observed.seeds, observed.seed_variance)
    sign, margin = 1 if claim.direction == "higher" else -1, _margin(claim)

    def power(seeds: int) -> float:
        planned = observed.with_seeds(seeds)
        if claim.test == "equivalence" and abs(observed.effect) <= margin:
            return planned.power_within(margin, alpha)
        if claim.test == "equivalence":
            return planned.power_beyond(math.copysign(margin, observed.effect), alpha)
        return planned.power_beyond(-sign * margin, alpha)

    if power(MAX_SEEDS) < POWER:
        return None
    low, high = 1, MAX_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return max(high, MIN_PAIRS)


def _margin(claim: Claim) -> float:
    """Margin in the unit of the contrast: its logarithm for a ratio, 0 if there is none."""
    if claim.margin is None:
        return 0.0
    return math.log(claim.margin) if claim.compare == "ratio" else claim.margin


def _observed(values: Sequence[float | None], after: Sequence[float | None]) -> list[EventInterval]:
    return [
        EventInterval(before or 0.0, math.inf if value is None else value)
        for value, before in zip(values, after, strict=True)
    ]
