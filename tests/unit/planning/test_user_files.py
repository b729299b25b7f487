"""Listings of the user's files: named by content, with cached digests."""

import os
from pathlib import Path

import pytest

from difftransformer.errors import DataError
from difftransformer.planning import user_files
from difftransformer.planning.user_files import UserFiles

YEARS_AGO = 10**18
"""A time of modification, in nanoseconds."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "{{cookiecutter.name}} of {x}"
    folder.mkdir()
    paths = [folder / os.fsdecode(name) for name in (b"a.txt", b"{x}.txt", "ü ß.txt".encode())]
    for path in paths:
        path.write_text(f"text of {path.name}")
    return paths


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files whose content is read, in order."""
    paths = list[Path]()
    digest = user_files.digest

    def watched(path: Path) -> str:
        paths.append(path)
        return digest(path)

    monkeypatch.setattr(user_files, "digest", watched)
    monkeypatch.setattr(user_files, "_SETTLED", -1.0)  # what was just written is settled
    return paths


def test_changed_content_changes_the_listing_whatever_the_mtime(files: list[Path]) -> None:
    listings = UserFiles(Path("plan"))
    listing = listings.listing("corpus", files)
    changed, before = files[1], files[1].stat()
    text = changed.read_text()
    changed.write_text(text.upper())  # of the same size
    os.utime(changed, ns=(YEARS_AGO, YEARS_AGO))
    assert listings.listing("corpus", files) != listing
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert listings.listing("corpus", files) != listing
    changed.write_text(text)
    assert listings.listing("corpus", files) == listing
    assert listings.listing("corpus", files[1:]) != listing


def test_touching_a_file_keeps_the_listing(files: list[Path]) -> None:
    listing = UserFiles(Path("plan")).listing("corpus", files)
    for path in files:
        path.touch()
    assert UserFiles(Path("plan")).listing("corpus", files) == listing


def test_only_changed_files_are_read_again(files: list[Path], read: list[Path]) -> None:
    listings = UserFiles(Path("plan"))
    listings.listing("corpus", files)
    assert read == files
    read.clear()
    listings.listing("corpus", files)
    assert read == []
    files[2].touch()
    more = files[0].with_name("more.txt")
    more.write_text("more")
    listings.listing("corpus", [*files, more])
    assert read == [files[2], more]


def test_a_file_written_just_now_is_read_again(
    files: list[Path], read: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_files, "_SETTLED", 3600.0)
    listings = UserFiles(Path("plan"))
    listings.listing("corpus", files)
    listings.listing("corpus", files)
    assert read == [*files, *files]


def test_a_moved_project_has_the_same_listings(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = UserFiles(Path("plan")).listing("corpus", files)
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    monkeypatch.chdir(moved)
    files = [moved / path.relative_to(tmp_path) for path in files]
    assert UserFiles(Path("plan")).listing("corpus", files) == listing
    moved.rename(tmp_path)


@pytest.mark.parametrize(
    "damaged", ["", "[]", "nothing", '{"a": 1}', '{"FILE": []}', '{"FILE": 3}']
)
def test_a_damaged_record_of_digests_is_made_again(damaged: str, files: list[Path]) -> None:
    listing = UserFiles(Path("plan")).listing("corpus", files)
    Path("plan/digests-corpus.json").write_text(damaged.replace("FILE", str(files[0])))
    assert UserFiles(Path("plan")).listing("corpus", files) == listing


def test_no_files_have_no_listing(tmp_path: Path) -> None:
    assert UserFiles(tmp_path / "plan").listing("corpus", []) == []
    assert not (tmp_path / "plan").exists()


def test_a_file_that_cannot_be_read_is_one_line(files: list[Path]) -> None:
    files[0].unlink()
    with pytest.raises(DataError, match=r"a\.txt: cannot be read \(no such file or directory\)"):
        UserFiles(Path("plan")).listing("corpus", files)
