"""Lock files: never a link, which could lead to a file of something else."""

from pathlib import Path

import pytest

from difftransformer.errors import UserError
from difftransformer.machine.locks import locked, open_lock, sign


@pytest.mark.parametrize("target", ["notes.txt", "not there"])
def test_a_lock_that_is_a_link_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    link = tmp_path / "state" / "lock"
    link.parent.mkdir()
    link.symlink_to(tmp_path / target)
    line = f"^{link}: is a link, but a lock must be a regular file: remove it$"
    with pytest.raises(UserError, match=line):
        sign(open_lock(link)[0])
    with pytest.raises(UserError, match=line), locked(link):
        pass
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "not there").exists()


def test_a_lock_in_a_folder_that_is_a_link_is_one(tmp_path: Path) -> None:
    """The folder of results may be on another disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "results").symlink_to(tmp_path / "disk")
    with locked(tmp_path / "results" / "state" / "lock"):
        assert (tmp_path / "disk" / "state" / "lock").is_file()
