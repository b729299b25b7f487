"""`make install` notices a .venv that cannot be used as it is."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def project(repository: Path, tmp_path: Path) -> Path:
    """A folder whose .venv is up to date, as far as make can tell."""
    folder = tmp_path / "project"
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / "config").mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "config/config.yaml"):
        shutil.copy(repository / name, folder / name)
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (folder / ".venv" / "installed").write_text(f"{folder.resolve()}\n")
    return folder


def is_up_to_date(folder: Path) -> bool:
    ended = subprocess.run(
        ["make", "--question", "install"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode in (0, 1), ended.stderr
    return ended.returncode == 0


def test_an_environment_that_is_whole_is_left_alone(project: Path) -> None:
    assert is_up_to_date(project)


def test_changed_requirements_install_again(project: Path) -> None:
    newer = (project / ".venv" / "installed").stat().st_mtime + 10
    os.utime(project / "pyproject.toml", (newer, newer))
    assert not is_up_to_date(project)


def test_a_copied_environment_is_made_again(project: Path) -> None:
    copy = shutil.copytree(project, project.with_name("copy"), symlinks=True)
    assert not is_up_to_date(copy)


def test_a_moved_environment_is_made_again(project: Path) -> None:
    assert not is_up_to_date(shutil.move(project, project.with_name("moved")))


def test_an_environment_whose_python_is_gone_is_made_again(project: Path) -> None:
    python = project / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nonexistent/python3")
    assert not is_up_to_date(project)


def test_an_environment_reached_through_a_link_is_left_alone(project: Path) -> None:
    link = project.with_name("link")
    link.symlink_to(project)
    assert is_up_to_date(link)
