"""Power of each registered claim, and the chance of a false decision of each family, simulated.

    python benchmarks/claim_power.py [--repeats 4000]

Differences over seeds are drawn from normal distributions with the standard deviations of earlier
seeds at scale tiny; times are rounded to the steps of probes. The draws are tested by
the code for verdicts. Prints the tables of docs/verdicts.md; takes some 20 minutes on one core.
Claims on times get an eighth of the repeats, since their test takes a hundred times as long.
"""

import argparse
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from difftransformer.config.registry import Claim, VerdictName
from difftransformer.config.resolved_artifacts import TestedClaims
from difftransformer.planning.plan import Plan
from difftransformer.reporting.claim_tests import (
    TestResult,
    combine_tests,
    estimate_contrast,
    run_test,
)
from difftransformer.reporting.evidence import Evidence, Values
from difftransformer.reporting.statistics import holm

DEFAULT_SEEDS, CONFIRMATION_SEEDS = 6, 12
PROCESSES = 5
"""Processes that time decoding at scale tiny, for claims that are not over seeds."""
PROBE, BUDGET = 20, 2400
"""Steps from one probe for retrieval to the next, and steps after which a training ends."""
FAR = 10.0
"""Standard deviations; an effect of this size is always detected."""


class Variation(NamedTuple):
    """How the numbers of a claim vary over seeds; logarithms where the claim is about a ratio.

    Attributes:
        deviations: Sample standard deviation of the paired differences of each contrast.
        seeds: Seeds that they are from.
        record: File of benchmarks/records that has the numbers.
        correlation: Of the differences of two contrasts.
        item_variance: What the choice of items adds to the variance of the mean difference.
        item_df: Its degrees of freedom.
        steps: Mean and deviation of the logarithm of the row's steps to learn.
    """

    deviations: tuple[float, ...]
    seeds: int
    record: str
    correlation: float = 0.0
    item_variance: float = 0.0
    item_df: int = 0
    steps: tuple[float, float] = (0.0, 0.0)


# An interval of half-width h over S seeds gives the deviation h sqrt(S) / t, with t of S - 1
# degrees of freedom; it includes what the items add.
POWER = "claim_power_second-2026-11-28"
EVIDENCE, DEX = "evidence-2026-11-23", "dex_tiny-2026-11-26"
OBSERVED: Mapping[str, Variation] = {
    "V1.equal_tokens": Variation((0.036,), 10, POWER),
    "V1.equal_tokens_control": Variation((0.0117,), 10, POWER),
    "V1.mechanism": Variation((0.081, 0.050), 10, POWER, correlation=0.48, steps=(5.80, 0.08)),
    # Pooled with seeds 11 to 15 of fresh_seeds-2026-11-28, C3.9 and C3.6.
    "V1.attention": Variation(
        (0.055, 0.025), 15, POWER, correlation=0.86, item_variance=1.3e-5, item_df=49
    ),
    "V1.loss": Variation((0.0153,), 12, EVIDENCE),  # DIFF - Transformer
    "V1.wide_heads": Variation((0.148,), 10, POWER, steps=(5.99, 0.08)),
    "V1.head_norm": Variation((0.096,), 10, POWER, steps=(5.74, 0.12)),
    "V1.needles": Variation((0.055,), 10, POWER, item_variance=4.4e-5, item_df=49),
    "Dex.control": Variation((0.00145,), 5, DEX),  # its D.1
    "Dex.forgetting": Variation((0.00072,), 5, DEX),  # D.2
    "Dex.lora": Variation((0.0708,), 5, DEX),  # D.5
    "V2.loss": Variation((0.0097,), 5, EVIDENCE),  # V2.2
    "V2.transformer": Variation((0.0145,), 5, EVIDENCE),  # V2.1
    "V2.spikes": Variation((0.62,), 5, EVIDENCE),  # V2.4
    "V2.decoding": Variation((0.015,), 8, "diff_v2-2026-11-22"),  # eight builds
}


def simulate(
    claim: Claim,
    variation: Variation,
    truth: Sequence[float],
    seeds: int,
    random: np.random.Generator,
) -> TestResult:
    """Draw the numbers of a claim once and test them as a verdict does.

    Args:
        claim: The claim.
        variation: How its numbers vary over seeds.
        truth: True effect of each contrast, a logarithm where it is a ratio.
        seeds: Number of paired seeds.
        random: Random generator.
    """
    correlations = np.full((len(truth), len(truth)), variation.correlation)
    np.fill_diagonal(correlations, 1.0)
    normal = random.normal(size=(seeds, len(truth))) @ np.linalg.cholesky(correlations).T
    differences = np.asarray(truth) + normal * np.asarray(variation.deviations)
    steps = random.normal(*variation.steps, seeds)  # of the row that two contrasts share
    tests = []
    for contrast, drawn in zip(claim.contrasts, differences.T, strict=True):
        ours, theirs = drawn + random.normal(0, math.sqrt(variation.item_variance)), np.zeros(seeds)
        timed = claim.compare == "ratio"
        if timed:
            ours, theirs = steps, steps - drawn
        values, after = _probed(ours) if timed else _exact(ours)
        baseline_values, baseline_lower_bounds = _probed(theirs) if timed else _exact(theirs)
        freedom = variation.item_df
        numbers = Evidence(
            metric=contrast.metric,
            row=contrast.row,
            baseline=str(contrast.baseline),
            seeds=list(range(seeds)),
            values=values,
            baseline_values=baseline_values,
            lower_bounds=after,
            baseline_lower_bounds=baseline_lower_bounds,
            item_variance=freedom and variation.item_variance * random.chisquare(freedom) / freedom,
            item_df=freedom,
            job_ids=[],
        )
        estimate = estimate_contrast(claim, numbers)
        assert estimate is not None, claim.question
        tests.append(run_test(claim, estimate))
    return combine_tests(claim, tests)


def power(
    claim: Claim, variation: Variation, seeds: int, alpha: float, repeats: int, seed: int = 0
) -> float:
    """Return the power of a claim: how often its `powered_for` effect is decided as claimed."""
    expected: VerdictName = "no difference" if claim.test == "equivalence" else "reproduced"
    random, truth = np.random.default_rng(seed), named_effect(claim)
    drawn = (simulate(claim, variation, truth, seeds, random) for _ in range(repeats))
    return sum(test.p < alpha and test.speaks_for == expected for test in drawn) / repeats


def named_effect(claim: Claim) -> tuple[float, ...]:
    """Return the `powered_for` effect of each contrast, in the claimed direction."""
    effect_size = claim.powered_for
    assert effect_size is not None, claim.question
    sign = 1 if claim.direction == "higher" else -1
    effect = math.log(effect_size) if claim.compare == "ratio" else sign * effect_size
    return (effect,) * len(claim.contrasts)


def nulls(claim: Claim, variation: Variation) -> list[tuple[float, ...]]:
    """Effects at which every decision is false: 0 or the margin, in at least one contrast."""
    margin = claim.margin or 0.0
    if claim.compare == "ratio" and claim.margin is not None:
        margin = math.log(claim.margin)
    edge = margin if claim.test == "equivalence" or claim.direction == "lower" else -margin
    if len(claim.contrasts) == 1:
        return [(edge,)]
    distant = edge + FAR * max(variation.deviations)
    other_effects = [0.0, distant] if margin else [distant]
    return [
        (edge, edge),
        *((edge, other) for other in other_effects),
        *((other, edge) for other in other_effects),
    ]


def null_p_values(
    claim: Claim, variation: Variation, seeds: int, alpha: float, repeats: int, seed: int
) -> NDArray[np.float64]:
    """Draw p-values [repeats] of a claim at its null with the most decisions at ``alpha``."""
    by_null = []
    for truth in nulls(claim, variation):
        random = np.random.default_rng(seed)
        drawn = [simulate(claim, variation, truth, seeds, random) for _ in range(repeats)]
        by_null.append(np.array([1.0 if test.speaks_for is None else test.p for test in drawn]))
    return max(by_null, key=lambda p_values: float(np.mean(p_values < alpha)))


def family_error(p_values: Sequence[NDArray[np.float64]], alpha: float) -> float:
    """Return how often Holm's correction decides any claim of a family, from draws per claim."""
    families = zip(*(draws.tolist() for draws in p_values), strict=True)
    return float(
        np.mean(
            [min(corrected.p_value for corrected in holm(family)) < alpha for family in families]
        )
    )


def least_p(claim: Claim, variation: Variation, seeds: int) -> float:
    """Return the smallest p-value: almost no variance, and an effect that no test misses."""
    noiseless = variation._replace(
        deviations=tuple(deviation / 1000 for deviation in variation.deviations),
        item_variance=0.0,
        steps=(variation.steps[0], 0.0),
    )
    effect = named_effect(claim)
    if claim.test == "difference" and claim.compare == "difference":
        effect = tuple(
            math.copysign(FAR * deviation, effect[0]) for deviation in variation.deviations
        )
    return simulate(claim, noiseless, effect, seeds, np.random.default_rng(0)).p


def registered() -> tuple[TestedClaims, list[str]]:
    """Claims at scale tiny, and those that the default targets answer."""
    plan = Plan.load(Path(__file__).parents[1] / "config", {"scale": "tiny"})
    tested = plan.claims.tested([], {})
    default = plan.resolver.project.default_targets
    return tested, [name for name, claim in tested.claims.items() if claim.artifact in default]


def _exact(numbers: NDArray[np.float64]) -> tuple[Values, Values]:
    """Return uncensored values, without lower bounds."""
    return numbers.tolist(), []


def _probed(logarithms: NDArray[np.float64]) -> tuple[Values, Values]:
    """Return the first probe at or after each time (None: over budget), and the one before."""
    reached = [PROBE * math.ceil(steps / PROBE) for steps in np.exp(logarithms)]
    values = [float(steps) if steps <= BUDGET else None for steps in reached]
    return values, [min(steps - PROBE, BUDGET) for steps in reached]


def widen(variation: Variation, level: float = 0.8) -> Variation:
    """Return a variation whose deviations are the upper limits of those observed."""
    freedom = variation.seeds - 1
    factor = math.sqrt(freedom / float(stats.chi2.ppf(1 - level, freedom)))
    return variation._replace(
        deviations=tuple(factor * deviation for deviation in variation.deviations)
    )


def measure(
    tested: TestedClaims, names: Sequence[str], default: Collection[str], repeats: int
) -> Iterator[tuple[str, int, NDArray[np.float64]]]:
    """Print one line per claim of a family; yield p-values at its null, by number of seeds."""
    alpha, random = tested.alpha / len(names), np.random.default_rng(0)
    for index, name in enumerate(names):
        claim, variation = tested.claims[name], OBSERVED[name]
        draws = repeats // 8 if claim.compare == "ratio" else repeats
        most = PROCESSES if claim.over == "processes" else CONFIRMATION_SEEDS
        cells = [
            f"{power(claim, variation, most, alpha, draws):.2f}",
            f"{power(claim, widen(variation), most, alpha, draws):.2f}",
            "",
            "",
        ]
        if name in default:
            least = least_p(claim, variation, DEFAULT_SEEDS)
            cells[2] = f"{power(claim, variation, DEFAULT_SEEDS, alpha, draws):.2f}"
            cells[3] = "yes" if least < alpha else f"no, {least:.2g}"
        deviations = ", ".join(f"{deviation:g}" for deviation in variation.deviations)
        first = [name, claim.test, f"{claim.powered_for:g}", f"{deviations} ({variation.seeds})"]
        print(f"| {' | '.join([*map(str, first), *cells])} |", flush=True)
        for count in [CONFIRMATION_SEEDS, *([DEFAULT_SEEDS] if name in default else [])]:
            sample = PROCESSES if claim.over == "processes" else count
            p_values = null_p_values(claim, variation, sample, alpha, draws, index)
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
        by_claim = {
            (name, seeds): p_values
            for name, seeds, p_values in measure(tested, names, default, repeats)
        }
        for seeds in (CONFIRMATION_SEEDS, DEFAULT_SEEDS):
            # A claim without results stays in its family, with p = 1.
            p_values = [by_claim.get((name, seeds), np.ones(repeats)) for name in names]
            if seeds == CONFIRMATION_SEEDS or any(name in default for name in names):
                error = family_error(p_values, tested.alpha)
                errors.append(f"| {family} | {len(names)} | {seeds} | {error:.3f} |")
    print("", *errors, sep="\n")


if __name__ == "__main__":
    main()
