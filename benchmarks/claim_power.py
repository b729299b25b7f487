"""Power of each registered claim, and the chance of a false decision of each family, simulated.

    python benchmarks/claim_power.py [--repeats 4000]

Differences over seeds are drawn from normal distributions with the deviations that exploratory
seeds showed at scale tiny, times on the grid of a training's probes, and tested by the code that
gives verdicts. Prints the tables of docs/verdicts.md; some 20 minutes on one core. Times are drawn
an eighth as often, since a test of theirs takes a hundred times as long.
"""

import argparse
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from difftransformer.config.artifact_slices import TestedClaims
from difftransformer.config.registry import Claim, VerdictName
from difftransformer.planning.plan import Plan
from difftransformer.reporting.claim_tests import Tested, combine, contrast_of, run_test
from difftransformer.reporting.evidence import Evidence, Values
from difftransformer.reporting.statistics import holm

DEFAULT_SEEDS, CONFIRMATION_SEEDS = 6, 12
PROCESSES = 5
"""Processes that time decoding at scale tiny, for claims that are not over seeds."""
PROBE, BUDGET = 20, 2400
"""Steps from one probe for retrieval to the next, and steps after which a training ends."""
FAR = 10.0
"""Deviations that no test misses."""


class Variation(NamedTuple):
    """How the numbers of a claim vary over seeds; logarithms where the claim is about a ratio.

    Attributes:
        deviations: Sample deviation of the paired differences of each contrast.
        seeds: Seeds that they are from.
        record: File of benchmarks/records that has the numbers.
        correlation: Of the differences of two contrasts.
        unit_variance: What the choice of items adds to the variance of the mean difference.
        unit_freedom: Its degrees of freedom.
        steps: Mean and deviation of the logarithm of the row's steps to learn.
    """

    deviations: tuple[float, ...]
    seeds: int
    record: str
    correlation: float = 0.0
    unit_variance: float = 0.0
    unit_freedom: int = 0
    steps: tuple[float, float] = (0.0, 0.0)


# An interval of half-width h over S seeds gives the deviation h sqrt(S) / t, with t of S - 1
# degrees of freedom; it includes what the items add.
BUDGET_RECORD, POWER = "retrieval_budget-2026-11-28", "claim_power-2026-11-28"
EVIDENCE, DEX = "evidence-2026-11-23", "dex_tiny-2026-11-26"
OBSERVED: Mapping[str, Variation] = {
    "V1.retrieval": Variation((0.062,), 3, BUDGET_RECORD, unit_variance=6.9e-6, unit_freedom=255),
    "V1.retrieval_control": Variation((0.040,), 3, BUDGET_RECORD, unit_freedom=255),
    "V1.mechanism": Variation((0.130, 0.037), 4, POWER, correlation=0.90, steps=(5.78, 0.11)),
    # Pooled with seeds 11 to 15 of fresh_seeds-2026-11-28, C3.9 and C3.6.
    "V1.attention": Variation((0.059, 0.023), 9, POWER, correlation=0.77, unit_freedom=49),
    "V1.loss": Variation((0.0153,), 12, EVIDENCE),  # DIFF - Transformer
    "V1.wide_heads": Variation((0.152,), 4, POWER, steps=(5.97, 0.12)),
    "V1.head_norm": Variation((0.118,), 4, POWER, steps=(5.71, 0.16)),
    "V1.needles": Variation((0.042,), 4, POWER, unit_variance=1.6e-5, unit_freedom=49),
    "Dex.control": Variation((0.00145,), 5, DEX),  # its D.1
    "Dex.forgetting": Variation((0.00072,), 5, DEX),  # D.2
    "Dex.lora": Variation((0.0708,), 5, DEX),  # D.5
    "V2.loss": Variation((0.0097,), 5, EVIDENCE),  # V2.2
    "V2.transformer": Variation((0.0145,), 5, EVIDENCE),  # V2.1
    "V2.spikes": Variation((0.62,), 5, EVIDENCE),  # V2.4
    "V2.decoding": Variation((0.015,), 8, "diff_v2-2026-11-22"),  # eight builds
}


def simulate(
    claim: Claim, seen: Variation, truth: Sequence[float], seeds: int, random: np.random.Generator
) -> Tested:
    """Draw the numbers of a claim once and test them as a verdict does.

    Args:
        claim: The claim.
        seen: How its numbers vary.
        truth: True effect of each contrast, a logarithm where it is a ratio.
        seeds: Number of paired seeds.
        random: Source of chance.
    """
    correlations = np.full((len(truth), len(truth)), seen.correlation)
    np.fill_diagonal(correlations, 1.0)
    normal = random.normal(size=(seeds, len(truth))) @ np.linalg.cholesky(correlations).T
    differences = np.asarray(truth) + normal * np.asarray(seen.deviations)
    steps = random.normal(*seen.steps, seeds)  # of the row that two contrasts share
    tests = []
    for contrast, drawn in zip(claim.contrasts, differences.T, strict=True):
        ours, theirs = drawn + random.normal(0, math.sqrt(seen.unit_variance)), np.zeros(seeds)
        timed = claim.compare == "ratio"
        if timed:
            ours, theirs = steps, steps - drawn
        values, after = _probed(ours) if timed else _exact(ours)
        baseline_values, baseline_after = _probed(theirs) if timed else _exact(theirs)
        freedom = seen.unit_freedom
        numbers = Evidence(
            metric=contrast.metric,
            row=contrast.row,
            baseline=str(contrast.baseline),
            seeds=list(range(seeds)),
            values=values,
            baseline_values=baseline_values,
            after=after,
            baseline_after=baseline_after,
            unit_variance=freedom and seen.unit_variance * random.chisquare(freedom) / freedom,
            unit_freedom=freedom,
            job_ids=[],
        )
        found = contrast_of(claim, numbers)
        assert found is not None, claim.question
        tests.append(run_test(claim, found))
    return combine(claim, tests)


def power(
    claim: Claim, seen: Variation, seeds: int, alpha: float, repeats: int, seed: int = 0
) -> float:
    """Return how often a claim is decided as it says when its effect is the one it names."""
    expected: VerdictName = "no difference" if claim.test == "equivalence" else "reproduced"
    random, truth = np.random.default_rng(seed), named_effect(claim)
    drawn = (simulate(claim, seen, truth, seeds, random) for _ in range(repeats))
    return sum(one.p < alpha and one.speaks_for == expected for one in drawn) / repeats


def named_effect(claim: Claim) -> tuple[float, ...]:
    """Effect of each contrast that a claim is powered for, on the side that it claims."""
    named = claim.powered_for
    assert named is not None, claim.question
    sign = 1 if claim.direction == "higher" else -1
    effect = math.log(named) if claim.compare == "ratio" else sign * named
    return (effect,) * len(claim.contrasts)


def nulls(claim: Claim, seen: Variation) -> list[tuple[float, ...]]:
    """Effects at which every decision is false: 0, or on the margin, in one contrast at least."""
    margin = claim.margin or 0.0
    if claim.compare == "ratio" and claim.margin is not None:
        margin = math.log(claim.margin)
    edge = margin if claim.test == "equivalence" or claim.direction == "lower" else -margin
    if len(claim.contrasts) == 1:
        return [(edge,)]
    far = edge + FAR * max(seen.deviations)
    others = [0.0, far] if margin else [far]
    return [(edge, edge), *((edge, one) for one in others), *((one, edge) for one in others)]


def null_p_values(
    claim: Claim, seen: Variation, seeds: int, alpha: float, repeats: int, seed: int
) -> NDArray[np.float64]:
    """Draw p-values [repeats] of a claim at the null that is decided most often at ``alpha``."""
    found = []
    for truth in nulls(claim, seen):
        random = np.random.default_rng(seed)
        drawn = [simulate(claim, seen, truth, seeds, random) for _ in range(repeats)]
        found.append(np.array([1.0 if one.speaks_for is None else one.p for one in drawn]))
    return max(found, key=lambda p_values: float(np.mean(p_values < alpha)))


def family_error(p_values: Sequence[NDArray[np.float64]], alpha: float) -> float:
    """Return how often Holm's correction decides a claim of a family, by p-values of each."""
    families = zip(*(one.tolist() for one in p_values), strict=True)
    return float(np.mean([min(one.p_value for one in holm(family)) < alpha for family in families]))


def least_p(claim: Claim, seen: Variation, seeds: int) -> float:
    """Return the p-value of seeds that agree all but exactly on an effect that no test misses."""
    still = seen._replace(
        deviations=tuple(one / 1000 for one in seen.deviations),
        unit_variance=0.0,
        steps=(seen.steps[0], 0.0),
    )
    effect = named_effect(claim)
    if claim.test == "difference" and claim.compare == "difference":
        effect = tuple(math.copysign(FAR * one, effect[0]) for one in seen.deviations)
    return simulate(claim, still, effect, seeds, np.random.default_rng(0)).p


def registered() -> tuple[TestedClaims, list[str]]:
    """Claims at scale tiny, and those that the default targets answer."""
    plan = Plan.load(Path(__file__).parents[1] / "config", {"scale": "tiny"})
    tested = plan.claims.tested([], {})
    default = plan.catalogue.project.headline
    return tested, [name for name, one in tested.claims.items() if one.artifact in default]


def _exact(numbers: NDArray[np.float64]) -> tuple[Values, Values]:
    """Return numbers that are known as they are, and nothing of what they exceed."""
    return numbers.tolist(), []


def _probed(logarithms: NDArray[np.float64]) -> tuple[Values, Values]:
    """Return the first probe that finds each time reached (None: none), and the one before."""
    reached = [PROBE * math.ceil(one / PROBE) for one in np.exp(logarithms)]
    values = [float(one) if one <= BUDGET else None for one in reached]
    return values, [min(one - PROBE, BUDGET) for one in reached]


def widen(seen: Variation, level: float = 0.8) -> Variation:
    """Return a variation whose deviations are the upper limits of those observed."""
    freedom = seen.seeds - 1
    factor = math.sqrt(freedom / float(stats.chi2.ppf(1 - level, freedom)))
    return seen._replace(deviations=tuple(factor * one for one in seen.deviations))


def measure(
    tested: TestedClaims, names: Sequence[str], default: Collection[str], repeats: int
) -> Iterator[tuple[str, int, NDArray[np.float64]]]:
    """Print the line of each claim of a family; yield p-values at its null, by number of seeds."""
    alpha, random = tested.alpha / len(names), np.random.default_rng(0)
    for place, name in enumerate(names):
        claim, seen = tested.claims[name], OBSERVED[name]
        draws = repeats // 8 if claim.compare == "ratio" else repeats
        most = PROCESSES if claim.over == "processes" else CONFIRMATION_SEEDS
        cells = [
            f"{power(claim, seen, most, alpha, draws):.2f}",
            f"{power(claim, widen(seen), most, alpha, draws):.2f}",
            "",
            "",
        ]
        if name in default:
            least = least_p(claim, seen, DEFAULT_SEEDS)
            cells[2] = f"{power(claim, seen, DEFAULT_SEEDS, alpha, draws):.2f}"
            cells[3] = "yes" if least < alpha else f"no, {least:.2g}"
        deviations = ", ".join(f"{one:g}" for one in seen.deviations)
        first = [name, claim.test, f"{claim.powered_for:g}", f"{deviations} ({seen.seeds})"]
        print(f"| {' | '.join([*map(str, first), *cells])} |", flush=True)
        for count in [CONFIRMATION_SEEDS, *([DEFAULT_SEEDS] if name in default else [])]:
            sample = PROCESSES if claim.over == "processes" else count
            p_values = null_p_values(claim, seen, sample, alpha, draws, place)
            yield name, count, random.choice(p_values, repeats) if draws < repeats else p_values


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=4000)
    repeats = parser.parse_args().repeats
    tested, default = registered()
    print(
        "| claim | test | powered for | deviation (seeds) | power, 12 seeds "
        "| at the upper limit of the deviation | power, 6 seeds | least p below alpha, 6 seeds |"
    )
    print("|---|---|---:|---|---:|---:|---:|---|")
    errors = ["| family | claims | seeds | false decisions |", "|---|---:|---:|---:|"]
    for family, names in tested.families.items():
        found = {
            (name, seeds): p_values
            for name, seeds, p_values in measure(tested, names, default, repeats)
        }
        for seeds in (CONFIRMATION_SEEDS, DEFAULT_SEEDS):
            # What is not built stays in its family and decides nothing.
            p_values = [found.get((name, seeds), np.ones(repeats)) for name in names]
            if seeds == CONFIRMATION_SEEDS or any(name in default for name in names):
                error = family_error(p_values, tested.alpha)
                errors.append(f"| {family} | {len(names)} | {seeds} | {error:.3f} |")
    print("", *errors, sep="\n")


if __name__ == "__main__":
    main()
