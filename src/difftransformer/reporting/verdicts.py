"""Verdicts on declared claims: what the paired results over seeds say, at their scale."""

from collections.abc import Mapping
from typing import NamedTuple

from difftransformer.config.artifact_slices import ArtifactSlice, ClaimSlice
from difftransformer.config.artifacts import ClaimConfig
from difftransformer.errors import ConfigError
from difftransformer.reporting.document import Cell, TableDocument, Verdict, VerdictName
from difftransformer.reporting.numbers import plain, probability, signed
from difftransformer.reporting.statistics import (
    FEWEST_PAIRS,
    Estimate,
    fewest_deciding_seeds,
    mean_interval,
    sign_test_p,
    t_test_above,
    t_test_below,
    t_test_p,
)


class Finding(NamedTuple):
    """Outcome of a test, before it is put into words."""

    verdict: VerdictName
    estimate: float | None
    low: float | None
    high: float | None
    p_value: float | None
    words: str


def judge(artifact: ArtifactSlice, table: TableDocument) -> list[Verdict]:
    """Judge every claim of an artifact by its table.

    Raises:
        ConfigError: a claim is about a column that the table does not have.
    """
    return [_judge(name, claim, artifact, table) for name, claim in artifact.claims.items()]


def decide(claim: ClaimConfig, ours: Mapping[int, float], theirs: Mapping[int, float]) -> Finding:
    """Test a claim on values by seed; seeds that only one of the two has do not count."""
    seeds = sorted(set(ours) & set(theirs))
    differences = [ours[seed] - theirs[seed] for seed in seeds]
    if len(seeds) < FEWEST_PAIRS:
        mean = sum(differences) / len(differences) if differences else None
        have = f"{len(seeds)} {_units(claim, len(seeds))}"
        words = f"{have}, a verdict needs {FEWEST_PAIRS} or more"
        if mean is not None:
            words = f"{_difference(claim)} {signed(mean, 3)}; {words}"
        return Finding("inconclusive", mean, None, None, None, words)
    tests = {"sign": _sign, "paired_t": _paired_t}
    finding = tests.get(claim.test, _within_margin)(claim, differences)
    alone = len(set(ours) ^ set(theirs))
    if not alone:
        return finding
    words = f"{finding.words}; left out: {alone} {claim.over} with a value on one side alone"
    return finding._replace(words=words)


def decide_against_number(claim: ClaimConfig, ours: Cell, number: float) -> Finding:
    """Test a claim on the values of all seeds against a number.

    A seed without a value, such as a ratio beyond what was measured, has none for a reason that
    may be the very thing claimed: the rest would be a selection, so nothing is decided.
    """
    missing = [seed for seed in ours.seeds if seed.value is None]
    if not missing:
        return decide(claim, ours.by_seed(), {seed.seed: number for seed in ours.seeds})
    words = "; ".join(f"seed {seed.seed} has no value: {seed.text}" for seed in missing)
    return Finding("inconclusive", None, None, None, None, words)


def _judge(name: str, claim: ClaimSlice, artifact: ArtifactSlice, table: TableDocument) -> Verdict:
    ours = _cell(name, claim.row, claim.metric, table)
    if isinstance(claim.against, str):
        theirs = _cell(name, claim.against, claim.against_metric or claim.metric, table)
        finding = decide(claim, ours.by_seed(), theirs.by_seed())
    else:
        theirs = ours
        finding = decide_against_number(claim, ours, claim.against)
    return Verdict(
        claim=name,
        text=claim.text,
        source=claim.source,
        scope=claim.scope,
        artifact=claim.artifact,
        verdict=finding.verdict,
        reason=f"At scale {artifact.scale}: {finding.words}.",
        estimate=finding.estimate,
        ci_low=finding.low,
        ci_high=finding.high,
        p_value=finding.p_value,
        n=len(set(ours.by_seed()) & set(theirs.by_seed())),
        job_ids=sorted({*ours.job_ids(), *theirs.job_ids()}),
    )


def _cell(name: str, row: str, column: str, table: TableDocument) -> Cell:
    cell = table.find(row, column)
    if cell is None:
        columns = sorted({cell.column for cell in table.cells()})
        raise ConfigError(
            f"config/artifacts/{table.artifact}.yaml: claims.{name}.metric: its table has no "
            f"column '{column}' for '{row}' (it has {', '.join(columns)})"
        )
    return cell


def _paired_t(claim: ClaimConfig, differences: list[float]) -> Finding:
    found = mean_interval(differences, 1 - claim.alpha)
    assert found.low is not None and found.high is not None
    p_value = t_test_p(found)
    name: VerdictName = "inconclusive"
    if found.high < 0 or found.low > 0:
        side = "lower" if found.high < 0 else "higher"
        name = "confirmed" if side == claim.direction else "contradicted"
    words = (
        f"{_difference(claim)} {_interval(found, 1 - claim.alpha)} over {found.n} "
        f"{_units(claim)}, claimed {claim.direction} ({_paired(claim)}t test, "
        f"{probability(p_value)})"
    )
    return Finding(name, found.mean, found.low, found.high, p_value, words)


def _within_margin(claim: ClaimConfig, differences: list[float]) -> Finding:
    """Equivalence and noninferiority: an interval of 1 - 2 alpha against the margin.

    The interval's two ends are one-sided tests at alpha each (Schuirmann 1987), whether it lies
    inside the margin or wholly outside.
    """
    assert claim.margin is not None
    level, margin = 1 - 2 * claim.alpha, claim.margin
    found = mean_interval(differences, level)
    assert found.low is not None and found.high is not None
    above, below = t_test_above(found, -margin), t_test_below(found, margin)
    if claim.test == "equivalence":
        p_value, bounds = max(above, below), f"±{margin:g}"
        inside, outside = (
            -margin < found.low and found.high < margin,
            found.low > margin or found.high < -margin,
        )
        what = "two one-sided t tests"
    elif claim.direction == "higher":
        p_value, bounds = above, f"−{margin:g}"
        inside, outside = found.low > -margin, found.high < -margin
        what = "noninferiority t test, higher is better"
    else:
        p_value, bounds = below, f"+{margin:g}"
        inside, outside = found.high < margin, found.low > margin
        what = "noninferiority t test, lower is better"
    name: VerdictName = "confirmed" if inside else "contradicted" if outside else "inconclusive"
    words = (
        f"{_difference(claim)} {_interval(found, level)} over {found.n} {_units(claim)}, "
        f"margin {bounds} ({what}, {probability(p_value)})"
    )
    return Finding(name, found.mean, found.low, found.high, p_value, words)


def _sign(claim: ClaimConfig, differences: list[float]) -> Finding:
    higher = sum(difference > 0 for difference in differences)
    lower = sum(difference < 0 for difference in differences)
    p_value = sign_test_p(higher, lower)
    name: VerdictName = "inconclusive"
    if p_value < claim.alpha:
        side = "higher" if higher > lower else "lower"
        name = "confirmed" if side == claim.direction else "contradicted"
    words = (
        f"of {len(differences)} {_units(claim)} {higher} higher, {lower} lower, "
        f"{len(differences) - higher - lower} equal, claimed {claim.direction} (exact sign test, "
        f"{probability(p_value)})"
    )
    needed = fewest_deciding_seeds(claim.alpha)
    if higher + lower < needed:
        words += f"; at α = {claim.alpha:g} it takes {needed} seeds that differ to decide"
    mean = sum(differences) / len(differences)
    return Finding(name, mean, None, None, p_value, words)


def _difference(claim: ClaimConfig) -> str:
    """Say what is tested: differences of two rows, or from a number."""
    return "difference" if isinstance(claim.against, str) else f"difference to {claim.against:g}"


def _paired(claim: ClaimConfig) -> str:
    return "paired " if isinstance(claim.against, str) else ""


def _units(claim: ClaimConfig, number: int = 2) -> str:
    """Name what the values are of."""
    return _paired(claim) + (claim.over if number != 1 else claim.over.removesuffix("s"))


def _interval(found: Estimate, level: float) -> str:
    assert found.low is not None and found.high is not None
    return (
        f"{signed(found.mean, 3)} ({level:.0%} interval {plain(found.low, 3)} to "
        f"{plain(found.high, 3)})"
    )
