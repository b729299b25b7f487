"""A checkout to run commands in, and a replacement for the programs they exec."""

from pathlib import Path
from unittest.mock import Mock

import pytest


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """What takes the place of this process; it would not come back."""
    execute = Mock()
    monkeypatch.setattr("os.execv", execute)
    return execute


@pytest.fixture
def checkout(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the configuration to work in."""
    (tmp_path / "config").symlink_to(repository / "config")
    monkeypatch.chdir(tmp_path)
    return tmp_path
