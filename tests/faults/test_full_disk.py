"""A disk that is full, or may not be written: one line that names the file, then it goes on.

RLIMIT_FSIZE makes a file too large anywhere; a small tmpfs, where we may mount one, is really full.
"""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from attempts import TRAINED, MakeRebuild, Rebuild, mounted

LAST = ("evaluate", "table")


def error_line(output: str) -> str:
    assert "Traceback" not in output
    assert "Logging error" not in output
    (line,) = [line for line in output.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.parametrize(
    ("rule", "missing", "limit", "named"),
    [
        ("tokenize", ("data",), 9000, "train-00000"),
        ("pretrain", TRAINED, 20_000, "checkpoint of step 10 "),
        pytest.param(
            "pretrain", TRAINED, 400, "checkpoint of step 10 ", marks=pytest.mark.exhaustive
        ),
        ("evaluate", TRAINED[1:], 600, "evaluations/validation_slices/diff/0.json"),
        ("table", TRAINED[2:], 600, "tables/table6."),
    ],
)
def test_a_file_that_cannot_grow_is_named(
    rebuild: MakeRebuild, rule: str, missing: tuple[str, ...], limit: int, named: str
) -> None:
    made = rebuild(*missing)
    status, output = made.run(rule, limit=limit)
    assert status == 2, output
    assert named in error_line(output)
    assert "make room there" in error_line(output)
    assert not made.leftovers("*.partial*")
    made.complete(*dict.fromkeys((rule, *(LAST if rule == "pretrain" else ()))))
    if rule == "evaluate":
        made.complete("table")
    made.assert_as_undisturbed()


def test_failed_checkpoint_write_keeps_the_previous_one(half_trained: Rebuild) -> None:
    before = half_trained.newest_step()
    status, output = half_trained.run("pretrain", limit=20_000)
    assert status == 2
    assert f"the latest complete one is of step {before}" in error_line(output)
    assert f"step {before}" in half_trained.complete("pretrain", *LAST)
    half_trained.assert_as_undisturbed()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", mebibytes=24) as folder:
        yield folder


def fill(disk: Path, leave: int) -> Path:
    """Take all but ``leave`` bytes."""
    filler = disk / "filler"
    with filler.open("wb") as stream:
        stream.truncate(0)
        stream.write(bytes(max(0, shutil.disk_usage(disk).free - leave)))
    return filler


@pytest.mark.exhaustive
@pytest.mark.parametrize("leave", [0, 100_000, 600_000])
def test_a_full_disk_under_a_training(rebuild: MakeRebuild, disk: Path, leave: int) -> None:
    made = rebuild(*TRAINED, folder=disk)
    filler = fill(disk, leave)
    words = [*made.calls["pretrain"], "--log", "results/smoke/logs/pretrain/diff/0.log"]
    status, output = made.run(words, tracking="sqlite:///results/mlflow/mlflow.db")
    assert status == 2, output
    assert "make room there" in error_line(output)
    filler.unlink()
    made.complete("pretrain", *LAST)
    made.assert_as_undisturbed()


@pytest.mark.exhaustive
def test_a_read_only_folder_is_named(rebuild: MakeRebuild, disk: Path) -> None:
    import subprocess

    made = rebuild(*TRAINED, folder=disk)
    words = [*made.calls["pretrain"], "--log", "results/smoke/logs/pretrain/diff/0.log"]
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for call in (words, made.calls["pretrain"]):
        status, output = made.run(call)
        assert status == 2, output
        assert "results/smoke/" in error_line(output)
        assert "Read-only file system" in error_line(output)
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    made.complete("pretrain", *LAST)
    made.assert_as_undisturbed()


@pytest.mark.exhaustive
def test_a_tracking_database_that_cannot_grow(untrained: Rebuild) -> None:
    import difftransformer.tracking.mlflow_runs  # noqa: F401 - attempts share the import

    uri = f"sqlite:///{untrained.folder}/results/mlflow/mlflow.db"
    assert untrained.run("pretrain", tracking=uri)[0] == 0
    for limit in (40_000, 200_000):  # inside the making of the tables
        status, output = untrained.run(["sync-tracking"], tracking=uri, limit=limit)
        assert status == 1
        assert "are not sent" in output
    assert untrained.run(["sync-tracking"], tracking=uri)[0] == 0
    rows = (untrained.results / "runs/diff/0/history.csv").read_text().splitlines()[1:]
    database = sqlite3.connect(uri.removeprefix("sqlite:///"))
    query = "SELECT step FROM metrics WHERE key = 'loss' ORDER BY step"
    assert [step for (step,) in database.execute(query)] == [int(r.split(",")[0]) for r in rows]
    database.close()
    untrained.complete(*LAST)
    untrained.assert_as_undisturbed()
