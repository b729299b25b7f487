"""Added runs, suites and tables need no synthetic results of their own."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import fake_configs
import fake_rest
import pytest
from fake_configs import SCALE, artifact_resolver, resolved_artifact
from fake_rest import LEFT_OUT, made_up, skipped, the_rest
from fake_results import FakeResults
from pictures import picture

from difftransformer.config.resolve import ConfigResolver
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import build_table, make_table

SEEDS = (0, 1)
SECTIONS = {
    "mine": {"validation_slices": "validation_slices", "sinks": "sinks"},
    "anew": {"my_slices": "validation_slices"},
}
"""Of each artifact: suites with their evaluations."""
SUITE = "  my_slices: {kind: validation_slices, seq_len: 64, n: 2, max_count: 9}\n"


@pytest.fixture
def added(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The run of the page beside its base in two tables; no other artifact is there."""
    page = (repository / "docs" / "adding.md").read_text()
    entry = page.partition("```yaml\n")[2].partition("```")[0]
    run = entry.partition(":")[0].strip()
    config = Path(shutil.copytree(repository / "config", tmp_path / "config"))
    for name, head, text in (("runs", "runs:\n", entry), ("evaluations", "suites:\n", SUITE)):
        file = config / f"{name}.yaml"
        file.write_text(file.read_text().replace(f"\n{head}", f"\n{head}{text}", 1))
    rows = [{"run": run_name} for run_name in ("transformer", "diff", run)]
    for name, suites in SECTIONS.items():
        parts = [
            {"title": suite, "evaluation": evaluation, "suites": [suite], "rows": rows}
            for suite, evaluation in suites.items()
        ]
        form = {"table": {"caption": "Mine."}, "figure": {"caption": "Mine.", "alt": "Mine."}}
        artifact = {"title": name, "description": name, "sections": parts, **form}
        (config / "artifacts" / f"{name}.yaml").write_text(json.dumps(artifact))
    full_config = ConfigResolver.load(config, {"scale": SCALE})
    only_sections = replace(
        full_config, artifacts={name: full_config.artifacts[name] for name in SECTIONS}
    )
    monkeypatch.setattr(fake_configs, "RESOLVER", only_sections)
    return run


def test_an_added_artifact_is_built_from_synthetic_results(
    added: str, small: FakeResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in ("transformer", "diff"):
        for seed in SEEDS:
            small.language_model(run, seed)
    metrics = ("share", "sink_heads", "weight", "mass", "uniform", "tokens", "share_l0", "share_l1")
    monkeypatch.setitem(fake_rest.METRICS, "sinks", metrics)
    before = len(small.results)
    the_rest(small, SEEDS)
    # A training of the run, one suite of it, and two suites of all three rows.
    assert len(small.results) - before == len(SEEDS) * (1 + 1 + 3 + 3)
    assert made_up("table") == made_up("figure") == [*SECTIONS]
    results = load_results(small.results, SCALE)
    for name in SECTIONS:
        artifact = resolved_artifact(name, seeds=SEEDS)
        build_table(artifact, small.results, tmp_path / name)
        for part in make_table(artifact, results).sections:
            own = [cell for cell in part.cells if cell.row == added]
            assert own and all(cell.n == len(SEEDS) for cell in own if cell.value is not None)
        assert picture(name, small, SEEDS).axes
    for seed in SEEDS:
        ours, base = (
            results.evaluation("validation_slices", run, seed).metrics["loss"]
            for run in (added, "diff")
        )
        assert ours is not None and base is not None and 0.98 < ours / base < 1


def test_the_documented_run_has_a_color_of_its_own(added: str, repository: Path) -> None:
    shipped = ConfigResolver.load(repository / "config", {"scale": SCALE})
    beside = {shipped.entry(run).color for run in shipped.artifacts["table6"].runs()}
    assert artifact_resolver().color(added) not in {None, *beside}


@pytest.mark.usefixtures("added")
def test_a_skipped_artifact_names_the_test_that_builds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fake_rest.LEFT_OUT, "sinks", "sinks/test_measure.py")
    assert made_up("table") == ["anew"]
    ((mark,),) = [parameter.marks for parameter in skipped("table")]
    assert mark.kwargs["reason"] == "mine: tests/evaluations/sinks/test_measure.py builds sinks"


def test_skipped_evaluations_have_tests_of_their_own(repository: Path) -> None:
    for evaluation, file in LEFT_OUT.items():
        assert (repository / "tests" / "evaluations" / file).is_file(), evaluation
