"""Fixtures of all rooms."""

import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from small_workflow import BuildOnce, Checkout, build_small

from difftransformer.machine.locks import locked

REPOSITORY = Path(__file__).resolve().parents[1]

settings.register_profile("any machine", deadline=None)  # a busy one is slow and not wrong
settings.load_profile("any machine")


LONGEST = (
    "workflow/test_parity", "training/test_distributed", "browser/test_site",
    "training/test_memory", "test_adaptation_reruns", "reporting/test_tables",
    "reporting/test_figures", "test_tracking_outages", "faults/test_damage", "browser/test_served",
    "workflow/test_forced", "test_declared_inputs", "test_verdicts_again",
    "examples/test_notebook", "docs/test_site",
)  # fmt: skip
"""Files that take half a minute and more: begun last, one of them would run on alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, then those of many tests."""
    sizes = Counter(item.path for item in items)

    def place(item: pytest.Item) -> tuple[int, int, str]:
        path = item.path.as_posix()
        longest = (place for place, part in enumerate(LONGEST) if path.endswith(f"{part}.py"))
        return next(longest, len(LONGEST)), -sizes[item.path], path

    items.sort(key=place)


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
        with locked(shared / f"building-{name}"):
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
