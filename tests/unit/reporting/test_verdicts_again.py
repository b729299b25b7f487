"""Every verdict from verdicts.csv alone, by pandas and scipy, sharing no code with the package."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fake_results import FakeResults
from fake_slices import SCALE, artifact_slice, declarations
from judging import claim, evidence, verdict
from scipy import stats
from test_tables import TABLES

from difftransformer.config.claims import VerdictsSlice
from difftransformer.reporting import verdict_job
from difftransformer.reporting.table_job import build_table
from difftransformer.reporting.verdict_job import (
    VerdictsDocument,
    build_verdicts,
    read_verdicts,
    to_markdown,
)

GIVEN = f"--config scale={SCALE} corpus=local_files"


def again(row: pd.Series) -> tuple[float, bool]:
    """The p-value of a line, and whether it speaks for the claim."""
    ours, theirs = (
        np.array([float(one) if one else np.inf for one in row[side].split(";")])
        for side in ("ours", "theirs")
    )
    sign = 1 if row.claimed == "higher" else -1
    if row.test == "time_to_event":
        t = np.minimum(np.r_[ours, theirs], float(row.beyond or np.inf))
        event = t < float(row.beyond or np.inf)
        risk = np.array([(t >= one).sum() for one in t])
        score = event - np.array([(event / risk)[t <= one].sum() for one in t])
        two = np.split(score, [len(ours)])
        effect = t[: len(ours)].mean() - t[len(ours) :].mean()
        found = stats.permutation_test(two, lambda x, y: x.mean() - y.mean())
        return min(1.0, found.pvalue), sign * effect > 0
    both = np.isfinite(ours) & np.isfinite(theirs)
    y, least = (ours - theirs)[both], 1e-9 * np.abs(np.r_[ours[both], theirs[both]]).max()
    y[np.abs(y) <= least] = 0  # rounding of equal numbers
    n, u, a = len(y), float(row.unit_variance), y.var(ddof=1) / len(y)
    mean = y.mean() if abs(y.mean()) > least else 0.0
    a, u = a * (a * n > least**2), u * (u > least**2)
    below = a**2 * (n + 1) / (n - 1) ** 2 + (u**2 / float(row.unit_freedom) if u else 0)
    df = max(n - 1, (a + u) ** 2 / below) if below else n - 1

    def p(value: float) -> float:
        if a + u == 0:
            return min(1.0, 2 * 0.5**n) if mean != value else 1.0
        return float(2 * stats.t.sf(abs(mean - value) / np.sqrt(a + u), df))

    margin = float(row.margin or 0)
    if row.test == "equivalence":
        nearest = min(margin, -margin, key=lambda edge: abs(mean - edge))
        return p(nearest), abs(mean) < margin
    return p(-sign * margin), sign * mean > -margin


@pytest.fixture(scope="module")
def judged(fake: FakeResults, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of all verdicts."""
    folder = tmp_path_factory.mktemp("judged")
    for name in TABLES:
        build_table(artifact_slice(name), fake.results, folder / name)
    declared = declarations()
    claims = {
        name: declared.claim(name) for one in declared.artifacts.values() for name in one.claims
    }
    asked = VerdictsSlice(scale=SCALE, claims=claims, given=GIVEN)
    tables = [folder / f"{name}.json" for name in TABLES]
    build_verdicts(
        asked, tables=tables, results=fake.results, output=folder / "v" / "verdicts.json"
    )
    return folder / "v"


@pytest.fixture(scope="module")
def lines(judged: Path) -> pd.DataFrame:
    return pd.read_csv(judged / "verdicts.csv", dtype=str, keep_default_na=False)


def test_all_verdicts_come_out_again(lines: pd.DataFrame) -> None:
    decided = lines[lines.p != ""].copy()
    found = [again(row) for _, row in decided.iterrows()]
    decided["again"] = [p for p, _ in found]
    assert decided.again.to_numpy() == pytest.approx(decided.p.astype(float).to_numpy(), rel=1e-6)
    for _, family in decided.groupby("family"):
        size = (lines.family == family.family.iloc[0]).sum()
        ranked = family.again.sort_values()
        adjusted = (ranked * (size - np.arange(len(ranked)))).clip(upper=1).cummax()
        assert adjusted.to_numpy() == pytest.approx(
            family.loc[ranked.index].p_adjusted.astype(float).to_numpy(), rel=1e-6
        )
    for (_, row), (_, holds) in zip(decided.iterrows(), found, strict=True):
        word = "confirmed" if holds else "opposite at this scale"
        open_ = float(row.p_adjusted) >= float(row.alpha) or ";;" in f";{row.ours};"
        assert row.verdict == ("inconclusive" if open_ else word), row.claim
    assert {"confirmed", "opposite at this scale", "inconclusive"} <= set(lines.verdict)


def test_the_first_columns_are_those_that_readers_look_for(lines: pd.DataFrame) -> None:
    assert list(lines)[:20] == [
        "claim", "paper", "primary", "artifact", "verdict", "scale", "parameters", "reason",
        "direction", "effect", "ci_low", "ci_high", "published_effect", "seeds", "seeds_needed",
        "p", "p_adjusted", "declared", "post_hoc", "run_ids",
    ]  # fmt: skip
    assert lines.claim.is_unique and not (lines.run_ids == "")[lines.verdict != "no data"].any()


def test_a_verdict_names_its_scale_and_the_size_of_its_models(
    lines: pd.DataFrame, judged: Path
) -> None:
    line = lines.set_index("claim").loc["T6.1"]
    assert line.verdict == "opposite at this scale"
    assert (line.scale, line.parameters) == (SCALE, "660000;660000")
    document = read_verdicts(judged / "verdicts.json")
    found = next(one for one in document.verdicts if one.claim == "T6.1")
    assert found.where == f"{SCALE}, 0.66M parameters"
    assert f"✗ opposite at this scale ({found.where})" in (judged / "verdicts.md").read_text()
    assert any(f"T6.1 opposite at this scale ({found.where})" in one for one in document.summary)
    # Models that are timed are of sizes of their own, which no training recorded.
    timed = [one for one in document.verdicts if one.artifact == "table7"]
    assert {one.where for one in timed} == {SCALE}


def test_what_would_decide_a_claim_keeps_the_settings_of_the_call(judged: Path) -> None:
    found = json.loads((judged / "verdicts.json").read_text())["verdicts"]
    undecided = [one for one in found if one["seeds_needed"] is not None]
    assert len(undecided) > 1
    for one in undecided:
        count = max(one["seeds_needed"], one["seeds"] + 1)
        assert one["command"] == f"snakemake {one['artifact']} {GIVEN} seeds={count}"


def test_what_would_decide_it_passes_over_seeds_that_a_claim_was_declared_after() -> None:
    """A count of seeds passes over those that are spent for all claims alone."""
    asked = claim(seen_seeds={"tiny": [6, 7], "small": [8]})
    slice = VerdictsSlice(scale="tiny", claims={"C": asked})
    spent = verdict(asked, evidence([], [], spent=[6, 7]))
    some = verdict(asked, evidence([1.0], [0.5], spent=[6, 7]))
    for one in (spent, some):
        found = verdict_job._with_command(one, slice, {})
        assert found.command == "snakemake t --config scale=tiny seeds=5"
        document = VerdictsDocument(scale="tiny", seeds=3, summary=[], verdicts=[found])
        assert found.command in to_markdown(document)
    # An artifact that begins behind them passes over none.
    later = VerdictsSlice(scale="tiny", claims={"C": asked.model_copy(update={"first_seed": 30})})
    assert verdict_job._with_command(spent, later, {}).command.endswith("seeds=3")


@pytest.mark.parametrize(("places", "seconds"), [(0, 40.0), (1, 30.0), (2, 22.5)])
def test_what_it_would_take_counts_cores_and_cards(
    places: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_job.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(verdict_job.gpus, "places", lambda: places)

    def job(device: str, seconds: float, **training: int) -> Any:
        settings = {"resolved": {"device": device}, "training": training}
        return SimpleNamespace(provenance=SimpleNamespace(seconds=seconds), settings=settings)

    on_cards = 30.0 if places else 40.0
    jobs = [job("cuda:0", on_cards / 2), job("cuda", on_cards / 2), job("cpu", 90 - on_cards)]
    assert verdict_job._wall_seconds(iter(jobs)) == seconds
    on_all_cards = job("cuda", 100.0, world=max(places, 1))
    assert verdict_job._wall_seconds([on_all_cards]) == 100.0
