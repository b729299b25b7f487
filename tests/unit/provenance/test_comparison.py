"""Two builds are the same when everything but times and machines is."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from difftransformer.cli import app
from difftransformer.errors import DataError
from difftransformer.provenance.published import compare_builds, publish


def build(folder: Path, started: str = "now", weights: bytes = b"w", loss: float = 1.0) -> Path:
    for name in ("runs", "tables", "logs"):
        (folder / name).mkdir(parents=True)
    (folder / "runs" / "model.safetensors").write_bytes(weights)
    result = {"metrics": {"loss": loss}, "provenance": {"started": started}}
    publish(folder / "runs" / "training.json", result, [folder / "runs" / "model.safetensors"])
    (folder / "tables" / "table6.csv").write_text("a,b\n")
    (folder / "tables" / ".table6.1.partial.csv").write_text("half")
    (folder / "logs" / "pretrain.log").write_text(started)
    return folder


def test_times_do_not_count(tmp_path: Path) -> None:
    one, other = build(tmp_path / "one"), build(tmp_path / "other", "later")
    compared = compare_builds(one, other)
    assert [file.name for file in compared if file.same] == [
        "runs/model.safetensors",
        "runs/training.json",
        "tables/table6.csv",
    ]
    ended = CliRunner().invoke(app, ["compare_builds", str(one), str(other)])
    assert ended.exit_code == 0
    assert "3 of 3 files are the same" in ended.output


def test_a_difference_is_listed_and_fails(tmp_path: Path) -> None:
    one = build(tmp_path / "one")
    other = build(tmp_path / "other", weights=b"v", loss=1.0000000000000002)
    (one / "tables" / "table6.csv").unlink()
    ended = CliRunner().invoke(app, ["compare_builds", str(one), str(other)])
    assert ended.exit_code == 1
    words = [line.split() for line in ended.output.splitlines()]
    assert [(w[0], w[-1]) for w in words[:3]] == [
        ("DIFFERENT", "runs/model.safetensors"),
        ("DIFFERENT", "runs/training.json"),
        ("MISSING", "tables/table6.csv"),
    ]
    assert "0 of 3 files are the same" in ended.output


def test_an_empty_rebuild_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing is built there"):
        compare_builds(build(tmp_path / "one"), tmp_path / "none")
