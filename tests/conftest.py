"""Fixtures of all rooms."""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

import pytest
from hypothesis import settings
from small_workflow import BuildOnce, Checkout, build_small

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
def build_once(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> BuildOnce:
    """Build a checkout once for all workers of a test run; each has a copy of its own to edit."""
    own = tmp_path_factory.getbasetemp()
    shared = own if worker_id == "master" else own.parent

    def once(name: str, build: Callable[[Path], Checkout]) -> Checkout:
        built = shared / name
        with exclusive(shared / f"building-{name}"):
            if not built.exists():
                build(Path(mkdtemp(dir=shared))).folder.rename(built)
        return Checkout(Path(shutil.copytree(built, own / f"my-{name}", symlinks=True)))

    return once


@pytest.fixture(scope="session")
def finished(build_once: BuildOnce, repository: Path) -> Checkout:
    """Three rows of table 6 at smoke scale with one seed, really built."""
    return build_once("finished", partial(build_small, repository))


@pytest.fixture
def config_folder(tmp_path: Path) -> Path:
    """A copy of config/ to spoil."""
    return Path(shutil.copytree(REPOSITORY / "config", tmp_path / "config"))
