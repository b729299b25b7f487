"""Every user error is one line: location, actual value, and allowed values or the fix.

Every case spoils finished work and calls the command that meets the damage: the exit status is not
zero, there is no traceback, no job starts where the mistake could be known before, and no finished
file is lost.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from configuration_cases import CONFIGURATION
from data_cases import DATA
from finished_work import Work, finish
from model_cases import MODELS

CASES = {
    f"{room}: {name}": case
    for room, cases in (("configuration", CONFIGURATION), ("data", DATA), ("models", MODELS))
    for name, case in cases.items()
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Work:
    folder = tmp_path_factory.mktemp("finished")
    here = Path.cwd()
    os.chdir(folder)
    try:
        return finish(folder, repository / "config")
    finally:
        os.chdir(here)


@pytest.fixture
def work(finished: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    copy = finished.copy(tmp_path / "work")
    monkeypatch.chdir(copy.folder)
    environment = dict(os.environ)
    yield copy
    os.environ.clear()
    os.environ.update(environment)


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file but what a started job notes of itself."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        path: path.read_bytes() for path in files if path.name not in ("lock", "tracking.jsonl")
    }


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_a_one_line_error_and_loses_nothing(case: str, work: Work) -> None:
    spoil, command, fragments = CASES[case]
    spoil(work)
    before = contents(work.folder)
    ended = command(work)
    assert ended.status == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    (line,) = ended.errors
    for part in fragments:
        assert part in line, line
    after = contents(work.folder)
    assert before.items() <= after.items(), "finished work was lost"
    if case.startswith("configuration: "):
        assert after == before, "something was started"
