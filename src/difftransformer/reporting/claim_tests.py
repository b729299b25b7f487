"""Tests of a claim on pairs of values, one per seed; see docs/verdicts.md for the statistics."""

from collections.abc import Sequence
from typing import NamedTuple

from difftransformer.config.claims import ClaimConfig
from difftransformer.reporting.document import Evidence
from difftransformer.reporting.numbers import decimals_for, plain, signed
from difftransformer.reporting.statistics import (
    FEWEST_PAIRS,
    MOST_SEEDS,
    POWER,
    Contrast,
    UnitChance,
    contrast,
    log_rank_p,
    log_rank_power,
)


class Tested(NamedTuple):
    """Outcome of a test: which side its p-value speaks for, and with what interval."""

    effect: float
    low: float | None
    high: float | None
    p_value: float
    holds: bool
    words: str


def run_test(
    claim: ClaimConfig, pairs: Sequence[tuple[float, float]], evidence: Evidence
) -> Tested:
    """Test a claim on pairs of values, one a seed."""
    found = contrast_of(pairs, evidence)
    low, high = found.interval()
    over = f"over {len(pairs)} {claim.over}"
    if evidence.units:
        over += f" and {evidence.units} {evidence.unit}"
    digits = decimals_for(found.effect, low, high)
    reach = ""
    if low is not None and high is not None:
        reach = f" ({plain(low, digits)} to {plain(high, digits)})"
    words = f"difference {signed(found.effect, digits)}{reach} {over}"
    if claim.test == "equivalence":
        assert claim.margin is not None
        # Twice, as the other: at the margin itself both decisions are wrong.
        within = min(1.0, 2 * max(found.above(-claim.margin), found.below(claim.margin)))
        outside = min(1.0, 2 * min(found.above(claim.margin), found.below(-claim.margin)))
        words += f", margin ±{claim.margin:g}"
        return Tested(found.effect, low, high, min(within, outside), within <= outside, words)
    sign, boundary = _claimed_side(claim)
    holds = sign * (found.effect - boundary) > 0
    if claim.margin is not None:
        words += f", margin {signed(boundary, 3)}"
    p_value = found.beyond(boundary)
    if claim.test == "time_to_event":
        p_value = log_rank_p(*_times(pairs, evidence))
        words = words.replace("difference", "restricted mean difference") + ", log-rank test"
    return Tested(found.effect, low, high, p_value, holds, words)


def direction(claim: ClaimConfig, effect: float | None) -> str:
    """Say on which side an effect lies, however small it is."""
    if effect is None:
        return ""
    if claim.test == "equivalence":
        assert claim.margin is not None
        return "as claimed" if abs(effect) < claim.margin else "opposite"
    sign, boundary = _claimed_side(claim)
    beyond = sign * (effect - boundary)
    return "as claimed" if beyond > 0 else "opposite" if beyond < 0 else "none"


def seeds_needed(
    claim: ClaimConfig, pairs: Sequence[tuple[float, float]], evidence: Evidence, alpha: float
) -> int | None:
    """Seeds with which a test at ``alpha`` decides with 80% power, if all is as observed.

    None: the effect lies on the boundary, or the units alone leave it open however many seeds.
    """
    found = contrast_of(pairs, evidence)

    def power(seeds: int) -> float:
        if claim.test == "time_to_event":
            return log_rank_power(*_times(pairs, evidence), seeds, alpha)
        then = found.with_seeds(seeds)
        if claim.test == "equivalence":
            assert claim.margin is not None
            outside = claim.margin if found.effect > 0 else -claim.margin
            if abs(found.effect) > claim.margin:
                return then.power_beyond(outside, alpha)
            return then.power_within(claim.margin, alpha)
        return then.power_beyond(_claimed_side(claim)[1], alpha)

    if power(MOST_SEEDS) < POWER:
        return None
    low, high = 1, MOST_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return max(high, FEWEST_PAIRS)


def _claimed_side(claim: ClaimConfig) -> tuple[int, float]:
    """Sign of the difference that is claimed, and the boundary that it is claimed to pass."""
    sign = 1 if claim.direction == "higher" else -1
    return sign, 0.0 if claim.margin is None else -sign * claim.margin


def contrast_of(pairs: Sequence[tuple[float, float]], evidence: Evidence) -> Contrast:
    """Return the difference of the pairs, with the variance of the sampled items."""
    ours, theirs = zip(*pairs, strict=True)
    return contrast(ours, theirs, UnitChance(evidence.unit_variance, evidence.unit_freedom))


def _times(
    pairs: Sequence[tuple[float, float]], evidence: Evidence
) -> tuple[Sequence[float], Sequence[float], float]:
    """Times of both rows, and when watching them ended: after the last where all were seen."""
    ours, theirs = zip(*pairs, strict=True)
    return ours, theirs, evidence.beyond or max(*ours, *theirs) + 1


def pairs_of(claim: ClaimConfig, evidence: Evidence) -> list[tuple[float, float]]:
    """Values of the seeds that have one on both sides; a time beyond the budget is the budget."""
    limit = evidence.beyond if claim.test == "time_to_event" else None

    def value(one: float | None) -> float | None:
        if limit is None:
            return one
        return limit if one is None else min(one, limit)

    both = zip(map(value, evidence.ours), map(value, evidence.theirs), strict=True)
    return [(one, two) for one, two in both if one is not None and two is not None]
