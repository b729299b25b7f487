"""All results of a scale as one tidy frame."""

import json
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from fake_configs import resolved_artifact
from fake_results import FakeResults

import difftransformer
from difftransformer.errors import DataError
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import build_table, make_table

COLUMNS = [
    "scale", "kind", "run", "suite", "seed", "metric", "value", "job_id", "git_commit",
    "fingerprint", "settings",
]  # fmt: skip


def test_every_metric_of_a_result_is_a_row(small: FakeResults) -> None:
    small.all_results((0, 1))
    frame = difftransformer.results(small.root)
    assert list(frame.columns) == COLUMNS
    assert set(frame["kind"]) == {"training", "evaluation", "judgment", "throughput", "decoding"}
    results = [json.loads(path.read_text()) for path in small.results]
    assert len(frame) == sum(len(result["metrics"]) for result in results)
    for result in results[:: len(results) // 20]:
        mine = frame[frame["job_id"] == result["job_id"]]
        undefined = {name for name, value in result["metrics"].items() if value is None}
        values = dict(zip(mine["metric"], mine["value"], strict=True))
        assert {name for name, value in values.items() if pd.isna(value)} == undefined
        assert values == pytest.approx(
            {
                name: float("nan") if value is None else value
                for name, value in result["metrics"].items()
            },
            nan_ok=True,
        )
        assert mine["settings"].iloc[0] == result["settings"]


def test_a_mean_over_seeds_is_that_of_the_table(fake: FakeResults) -> None:
    loss = difftransformer.results(str(fake.root)).query(
        "suite == 'validation_slices' and metric == 'loss'"
    )
    table = make_table(resolved_artifact("table6"), load_results(fake.results, "tiny"))
    cell = table.find("diff", "valid")
    assert cell is not None
    assert loss.groupby("run")["value"].mean()["diff"] == pytest.approx(cell.value)


def test_partial_files_of_killed_jobs_are_ignored(small: FakeResults) -> None:
    small.all_results((0,))
    before = len(difftransformer.results(small.root))
    (path, *_) = (path for path in small.results if path.parts[-4] == "evaluations")
    path.with_name(".0.4711.partial.json").write_text("{")
    assert len(difftransformer.results(small.root)) == before


def test_an_empty_folder_fails_with_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no results; name the folder of a scale") as error:
        difftransformer.results(tmp_path)
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)


@pytest.mark.parametrize("name", ["table6", "v2_loss", "table7"])
def test_the_frame_of_a_table_equals_its_csv(name: str, fake: FakeResults, tmp_path: Path) -> None:
    artifact = resolved_artifact(name)
    build_table(artifact, fake.results, tmp_path / name)
    frame = make_table(artifact, load_results(fake.results, "tiny")).frame()
    text = (tmp_path / f"{name}.csv").read_text(encoding="utf-8")
    assert frame.to_csv(index=False, lineterminator="\n") == text
    read = pd.read_csv(StringIO(text), float_precision="round_trip")
    assert read["value"].tolist() == pytest.approx(
        frame["value"].astype(float).tolist(), abs=0, rel=0, nan_ok=True
    )
