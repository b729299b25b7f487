from pathlib import Path

import pytest

from difftransformer.config.folders import files_below


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
    (folder / "deep" / "linked").symlink_to(folder.parent / "elsewhere")
    (folder / "file").symlink_to(folder.parent / "elsewhere" / "three")
    (folder / "gone").symlink_to(folder.parent / "nowhere")
    linked = ["deep/linked/deep/four", "deep/linked/three", "deep/two"]
    assert names_below(folder) == [*linked, "file", "one"]
    (folder.parent / "all").symlink_to(folder)
    assert names_below(folder.parent / "all") == [*linked, "file", "one"]


def test_a_loop_of_links_ends_and_no_folder_is_read_twice(folder: Path) -> None:
    (folder / "deep" / "up").symlink_to(folder)
    (folder / "itself").symlink_to(folder / "itself")
    (folder / "a_second_name").symlink_to(folder / "deep")
    (folder / "linked").symlink_to(folder.parent / "elsewhere")
    (folder / "more").symlink_to(folder.parent / "elsewhere" / "deep")
    assert names_below(folder) == ["deep/two", "linked/deep/four", "linked/three", "one"]


def test_what_is_no_folder_has_nothing_below(folder: Path) -> None:
    assert names_below(folder / "one") == names_below(folder / "nowhere") == []
