"""Every verdict recomputed from verdicts.csv by pandas and scipy, without the package's code."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fake_configs import RESOLVER, SCALE, resolved_artifact
from fake_results import FakeResults
from fake_site import fake_claims
from scipy import optimize, stats

from difftransformer.reporting.verdict_job import build_verdicts, read_verdicts

SIDES = ("values", "baseline_values", "lower_bounds", "baseline_lower_bounds")


def again(row: pd.Series) -> tuple[float, str]:
    """The p-value of a line, and what it speaks for; at most 40 lines, by the csv alone."""
    x, y, after_x, after_y = (
        np.array([float(text) if text else np.inf for text in row[side].split(";")])
        for side in SIDES
    )
    sign, margin = 1 if row.claimed == "higher" else -1, float(row.margin or 0)
    if row["compare"] == "ratio":
        margin = np.log(margin) if margin else 0.0
        with np.errstate(divide="ignore"):
            low, high = np.log(after_x / y), np.log(x / after_y)
        informative = np.isfinite(low) | np.isfinite(high)
        low, high = low[informative], high[informative]

        def nll(mean: float, log_sd: float) -> float:
            z = [(end - mean) / np.exp(log_sd) for end in (low, high)]
            return -np.log(np.maximum(stats.norm.cdf(z[1]) - stats.norm.cdf(z[0]), 1e-300)).sum()

        start = np.mean([np.where(np.isfinite(e), e, 0) for e in (low, high)], 0)
        at = [start.mean(), np.log(start.std() + 0.01)]
        best = optimize.minimize(lambda a: nll(*a), at, method="Nelder-Mead", tol=1e-10)
        n, mean = len(low), best.x[0]

        def t(value: float) -> float:
            at_value = optimize.minimize_scalar(lambda s: nll(value, s), bounds=(-9, 7)).fun
            ratio = max(0.0, 2 * (at_value - best.fun) / n)
            return float(np.sign(mean - value) * np.sqrt((n - 1) * np.expm1(ratio)))

        df = n - 1.0
    else:
        both = np.isfinite(x) & np.isfinite(y)
        d = x[both] - y[both]
        n, mean, a, u = len(d), d.mean(), d.var(ddof=1) / len(d), float(row.item_variance)
        below = a**2 * (n + 1) / (n - 1) ** 2 + (u**2 / float(row.item_df) if u else 0)
        df = max(n - 1.0, (a + u) ** 2 / below)

        def t(value: float) -> float:
            return float((mean - value) / np.sqrt(a + u))

    side = "reproduced" if sign * mean > 0 else "opposite"
    if row.test != "equivalence":
        holds = sign * mean > -margin
        two_sided = 2 * stats.t.sf(abs(t(-sign * margin)), df)
        return float(two_sided), "reproduced" if holds else "opposite"
    within = 2 * max(stats.t.sf(t(-margin), df), stats.t.cdf(t(margin), df))
    outside = 2 * min(stats.t.sf(t(margin), df), stats.t.cdf(t(-margin), df))
    return float(min(within, outside, 1)), "no difference" if within <= outside else side


@pytest.fixture(scope="module")
def answers(fake: FakeResults, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of all verdicts."""
    folder = tmp_path_factory.mktemp("answers")
    names = dict.fromkeys(claim.artifact for claim in RESOLVER.registry.claims.values())
    claims = fake_claims([resolved_artifact(name) for name in names])
    build_verdicts(claims, results=fake.results, output=folder / "verdicts.json")
    return folder


@pytest.fixture(scope="module")
def lines(answers: Path) -> pd.DataFrame:
    return pd.read_csv(answers / "verdicts.csv", dtype=str, keep_default_na=False)


def test_every_verdict_is_reproduced_from_its_csv(lines: pd.DataFrame) -> None:
    tested = lines[(lines.test != "") & (lines.verdict != "not testable")].copy()
    recomputed = [again(row) for _, row in tested.iterrows()]
    tested["again"], tested["speaks_for"] = zip(*recomputed, strict=True)
    assert tested.again.to_numpy() == pytest.approx(tested.p.astype(float), rel=2e-3)
    claims = tested.groupby("claim").agg({"again": "max", "family": "first"})
    sides = tested.groupby("claim").speaks_for.agg(set)
    mixed = [len(side) > 1 and side != {"reproduced", "opposite"} for side in sides]
    claims.loc[mixed, "again"] = 1.0
    registered = RESOLVER.registry.claims.values()
    for family, ranked in claims.sort_values("again").groupby("family", sort=False):
        size = sum(text.family == family for text in registered)
        adjusted = (ranked.again * (size - np.arange(len(ranked)))).clip(upper=1).cummax()
        for claim, p_value in adjusted.items():
            line = tested[tested.claim == claim].iloc[0]
            assert p_value == pytest.approx(float(line.p_adjusted), rel=2e-3)
            side = sides[claim]
            decided = p_value < float(line.alpha) and (
                len(side) == 1 or "no difference" not in side
            )
            word = next(iter(side)) if len(side) == 1 else "turns"
            assert line.verdict.startswith(word if decided else "inconclusive"), claim
    assert len(claims) > 12


def test_a_verdict_names_its_scale_and_the_size_of_its_models(
    lines: pd.DataFrame, answers: Path
) -> None:
    line = lines.set_index("claim").loc["V1.loss"]
    assert line.verdict == "opposite at this scale"
    assert (line.scale, line.parameters) == (SCALE, "660000;660000")
    document = read_verdicts(answers / "verdicts.json")
    loss_verdict = next(verdict for verdict in document.verdicts if verdict.claim == "V1.loss")
    assert loss_verdict.where == f"{SCALE}, 0.66M parameters"
    assert f"✗ {loss_verdict.words} ({loss_verdict.where})" in (answers / "verdicts.md").read_text()
    assert any(f"V1.loss {loss_verdict.words}" in text for text in document.summary)
    assert loss_verdict.digest == line.digest == RESOLVER.registry.claims["V1.loss"].digest
    # Models that are timed are of sizes of their own, which no training recorded.
    timed = [verdict for verdict in document.verdicts if verdict.about.over == "processes"]
    assert {text.where for text in timed} == {SCALE}
