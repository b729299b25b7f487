"""Sweeps of learning rates: the best rate, the one in use, and rates at which seeds diverged."""

import json
from dataclasses import replace
from pathlib import Path

from built_tables import read
from fake_configs import SCALE, resolved_artifact
from fake_results import FakeResults, rewrite
from pictures import hollow, picture_of

from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import build_table


def test_sweep_marks_best_and_chosen_and_says_when_they_differ(
    fake: FakeResults, tmp_path: Path
) -> None:
    build_table(resolved_artifact("lr_sweep"), fake.results, tmp_path / "lr_sweep")
    text = (tmp_path / "lr_sweep.md").read_text()
    transformer, diff = (next(x for x in text.splitlines() if x.startswith(f"| {name} "))
                         for name in ("Transformer", "DIFF"))  # fmt: skip
    assert "★†" in transformer and "★ " in diff and "† " in diff
    cells = read(tmp_path / "lr_sweep.csv")
    assert cells["diff", "best_learning_rate"]["value"] == "0.004"
    assert cells["diff", "chosen_learning_rate"]["value"] == "0.002"


def test_a_rate_with_diverged_seeds_is_not_the_best(small: FakeResults, tmp_path: Path) -> None:
    small.all_results()
    artifact = resolved_artifact("lr_sweep")
    part = artifact.sections[0]
    column = part.options.metric

    def lose(rate: float, seeds: int) -> None:
        runs = [entry.run_id for entry in part.sweep if entry.learning_rate == rate]
        paths = [p for p in small.results if p.parent.parent.name in runs]
        for path in [p for p in paths if int(p.parent.name) in artifact.seeds[:seeds]]:
            result = json.loads(path.read_text())
            result["metrics"][column] = None
            rewrite(path, json.dumps(result))

    lose(4e-3, 1)
    build_table(artifact, small.results, tmp_path / "one")
    cells = read(tmp_path / "one.csv")
    assert cells["transformer", "best_learning_rate"]["value"] not in ("", "0.004")
    for entry in part.sweep:
        lose(entry.learning_rate, len(artifact.seeds))
    build_table(artifact, small.results, tmp_path / "all")
    cells = read(tmp_path / "all.csv")
    assert cells["transformer", "best_learning_rate"]["value"] == ""
    assert "n/a ★" not in (tmp_path / "all.md").read_text()


def test_sweep_says_when_its_rates_are_too_few(fake: FakeResults, tmp_path: Path) -> None:
    artifact = resolved_artifact("lr_sweep")
    parts = [
        part.model_copy(
            update={"sweep": [s for s in part.sweep if s.learning_rate > 3e-3 and not s.chosen]}
        )
        for part in artifact.sections
    ]
    diff = [p.model_copy(update={"rows": [r for r in p.rows if "diff" in r.run]}) for p in parts]
    build_table(artifact.model_copy(update={"sections": diff}), fake.results, tmp_path / "s")
    text = (tmp_path / "s.md").read_text()
    line = next(entry for entry in text.splitlines() if entry.startswith("| DIFF "))
    assert "★" in line
    assert [entry.strip() for entry in line.split("|")[-3:-1]] == ["4e-3", "not swept"]
    assert "at the edge of the grid, a wider grid may have a better one" in text


def test_a_rate_without_the_seeds_that_diverged_is_hollow(fake: FakeResults) -> None:
    artifact, results = resolved_artifact("lr_sweep", "figure"), load_results(fake.results, SCALE)
    swept = next(entry for entry in artifact.sections[0].sweep if entry.learning_rate == 8e-3)
    trained = results.training(swept.run_id, 1)
    trained = trained.model_copy(update={"metrics": trained.metrics | {"validation_loss": None}})
    without = replace(results, trainings={**results.trainings, (swept.run_id, 1): trained})
    first, second = picture_of(artifact, without, fake).axes
    assert hollow(first) == [8e-3] and not hollow(second)
