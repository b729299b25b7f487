from pathlib import Path

import pytest

from difftransformer.config.folders import files_below, read_folder, require_inside
from difftransformer.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("own/one", "own/deep/two", "elsewhere/three", "elsewhere/deep/four"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "own"


def names_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in files_below(folder))


def test_linked_folders_and_files_are_followed(folder: Path) -> None:
    (folder.parent / "elsewhere").rename(folder / ".elsewhere")
    (folder / "deep" / "linked").symlink_to(folder / ".elsewhere")
    (folder / "file").symlink_to(folder / ".elsewhere" / "three")
    (folder / "gone").symlink_to(folder.parent / "nowhere")
    linked = ["deep/linked/deep/four", "deep/linked/three", "deep/two"]
    assert names_below(folder) == [*linked, "file", "one"]
    (folder.parent / "all").symlink_to(folder)
    assert names_below(folder.parent / "all") == [*linked, "file", "one"]


def test_a_loop_of_links_ends_and_no_folder_is_read_twice(folder: Path) -> None:
    (folder / "deep" / "up").symlink_to(folder)
    (folder / "itself").symlink_to(folder / "itself")
    (folder / "a_second_name").symlink_to(folder / "deep")
    (folder.parent / "elsewhere").rename(folder / ".elsewhere")
    (folder / "linked").symlink_to(folder / ".elsewhere")
    (folder / "more").symlink_to(folder / ".elsewhere" / "deep")
    assert names_below(folder) == ["deep/two", "linked/deep/four", "linked/three", "one"]


def test_a_path_that_is_no_folder_has_no_files(folder: Path) -> None:
    assert names_below(folder / "one") == names_below(folder / "nowhere") == []


@pytest.mark.parametrize("to", ["elsewhere", "elsewhere/three", "own-2/one", "elsewhere/up/own-2"])
@pytest.mark.parametrize("relative", [False, True])
def test_a_link_out_of_the_folder_is_not_followed(folder: Path, to: str, relative: bool) -> None:
    (folder.parent / "own-2").mkdir()  # which begins with the folder's name
    (folder.parent / "own-2" / "one").write_text("one")
    (folder.parent / "elsewhere" / "up").symlink_to(folder.parent)
    link = folder / "deep" / "link"
    link.symlink_to(Path("../..", to) if relative else folder.parent / to)
    contents = read_folder(folder)
    names = {path.name for path in contents.files}
    assert contents.outside == [link] and not names & {"link", "three"}
    message = rf"deep/link: is a link to .*, outside {folder}: "
    with pytest.raises(DataError, match=message) as error:
        files_below(folder)
    assert "\n" not in str(error.value)
    assert read_folder(folder, folder.parent).outside == []


def test_a_hard_link_is_a_file_like_others(folder: Path) -> None:
    (folder / "again").hardlink_to(folder.parent / "elsewhere" / "three")
    assert names_below(folder) == ["again", "deep/two", "one"]


def test_a_snapshot_of_the_hub_is_made_of_links(tmp_path: Path) -> None:
    snapshot, blob = tmp_path / "datasets--a--b/snapshots/0123", tmp_path / "datasets--a--b/blobs/4"
    for path in (snapshot / "data", blob.parent):
        path.mkdir(parents=True)
    blob.write_text("text")
    (snapshot / "data" / "train.jsonl").symlink_to("../../../blobs/4")
    (tmp_path / "mine").symlink_to(snapshot)
    for folder in (snapshot, tmp_path / "mine"):
        assert names_below(folder) == ["data/train.jsonl"]
    secret = tmp_path / "secret"
    secret.write_text("mine")
    (snapshot / "data" / "more.jsonl").symlink_to(secret)
    with pytest.raises(DataError, match=r"more.jsonl: is a link to"):
        files_below(snapshot)
    blob.unlink()
    blob.symlink_to(secret)
    with pytest.raises(DataError, match=r"train.jsonl: is a link to"):
        require_inside(snapshot / "data" / "train.jsonl", snapshot)
