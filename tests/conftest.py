"""Fixtures of all rooms."""

import shutil
from pathlib import Path

import pytest
from hypothesis import settings
from small_workflow import Checkout, build_small

REPOSITORY = Path(__file__).resolve().parents[1]

settings.register_profile("any machine", deadline=None)  # a busy one is slow and not wrong
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Checkout:
    """Three rows of table 6 at smoke scale with one seed, really built."""
    return build_small(repository, tmp_path_factory.mktemp("finished"))


@pytest.fixture
def config_folder(tmp_path: Path) -> Path:
    """A copy of config/ to spoil."""
    return Path(shutil.copytree(REPOSITORY / "config", tmp_path / "config"))
