"""Fixtures of all rooms."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

import pytest
from hypothesis import settings
from small_workflow import Checkout, build_small

from difftransformer.provenance.job import exclusive

REPOSITORY = Path(__file__).resolve().parents[1]

# Golden values and bits need the same arithmetic on each machine, in the processes of tests too.
os.environ.setdefault("DIFFTRANSFORMER_ARITHMETIC", "assumed")

settings.register_profile("any machine", deadline=None)  # a busy one is slow and not wrong
settings.load_profile("any machine")


@pytest.fixture(scope="session", autouse=True)
def without_waiting_for_disks() -> Iterator[None]:
    """What is written survives a killed process without it, and no test pulls a plug."""
    with patch.object(os, "fsync", lambda descriptor: None):
        yield


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def finished(
    tmp_path_factory: pytest.TempPathFactory, repository: Path, worker_id: str
) -> Checkout:
    """Three rows of table 6 at smoke scale with one seed, really built.

    Workers of one test run build them once, and each has a copy of its own to work in.
    """
    own = tmp_path_factory.getbasetemp()
    shared = own if worker_id == "master" else own.parent
    built = shared / "built"
    with exclusive(shared / "building"):
        if not built.exists():
            build_small(repository, Path(mkdtemp(dir=shared))).folder.rename(built)
    return Checkout(Path(shutil.copytree(built, own / "finished", symlinks=True)))


@pytest.fixture
def config_folder(tmp_path: Path) -> Path:
    """A copy of config/ to spoil."""
    return Path(shutil.copytree(REPOSITORY / "config", tmp_path / "config"))
