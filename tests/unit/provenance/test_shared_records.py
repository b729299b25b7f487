"""Records of two machines about files in shared storage."""

import json
from pathlib import Path

import pytest

from difftransformer.errors import CheckpointError, DataError
from difftransformer.provenance.shared_records import NAME, fetch_records, share_records


def note(folder: Path, name: str, made_with: str, endtime: float) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"params": [made_with], "endtime": endtime}))


def made_with(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): json.loads(path.read_text())["params"][0]
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_latest_record_of_a_file_wins(tmp_path: Path) -> None:
    first, second, url = tmp_path / "one", tmp_path / "two", f"file://{tmp_path}/bucket"
    (tmp_path / "bucket").mkdir()
    note(first, "@long/table", "seeds 1", 10)
    note(first, "training", "lr 0.001", 10)
    share_records(url, first)
    fetch_records(url, second)
    assert made_with(second) == {"@long/table": "seeds 1", "training": "lr 0.001"}

    note(second, "training", "lr 0.002", 20)
    share_records(url, second)
    note(first, "@long/table", "seeds 2", 30)
    share_records(url, first)  # which has not seen what the other did
    for folder in (first, second):
        fetch_records(url, folder)
        assert made_with(folder) == {"@long/table": "seeds 2", "training": "lr 0.002"}


def test_a_truncated_record_is_ignored(tmp_path: Path) -> None:
    first, second, url = tmp_path / "one", tmp_path / "two", f"file://{tmp_path}"
    note(first, "whole", "lr", 1)
    note(first, "torn", "lr", 1)
    (first / "torn").write_text('{"params": ["l')
    share_records(url, first)
    fetch_records(url, second)
    assert made_with(second) == {"whole": "lr"}


@pytest.mark.parametrize("text", ["[1]", '{"a": 1}', '{"a"', '{"../a": {}}', '{"/a": {}}'])
def test_damaged_notes_are_named(text: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(DataError, match=rf"{tmp_path}/{NAME}: damaged \(.*\): delete it"):
        fetch_records(f"file://{tmp_path}", tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_a_place_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(CheckpointError, match=rf"{NAME}: cannot be read \("):
        fetch_records(f"file://{tmp_path}", tmp_path / "here")
