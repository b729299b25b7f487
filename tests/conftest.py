"""Fixtures of all rooms."""

import shutil
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return REPOSITORY


@pytest.fixture
def config_folder(tmp_path: Path) -> Path:
    """A copy of config/ to spoil."""
    return Path(shutil.copytree(REPOSITORY / "config", tmp_path / "config"))
