"""Fixtures of all tests."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

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


MAY_SKIP = (
    "DIFFTRANSFORMER_SHARED_DATA names no folder", "mounting a small file system needs root",
    "draws pictures for the docs", "Triton's interpreter", "torch has no oneDNN matmul here",
)  # fmt: skip
"""Reasons for which a test may be skipped on a forge too: data and processors that it has not."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail what is skipped."""
    return _failed_on_a_forge((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Fail a file that is skipped."""
    return _failed_on_a_forge((yield))


def _failed_on_a_forge(report: Any) -> Any:
    """Make a skipped check a failure where `CI` is set: nobody reads there what was not run."""
    if os.environ.get("CI") and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith(MAY_SKIP):
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid}: skipped, but CI is set: {reason}"
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, then those of many tests."""
    sizes = Counter(item.path for item in items)

    def sort_key(item: pytest.Item) -> tuple[int, int, str]:
        path = item.path.as_posix()
        longest = (index for index, part in enumerate(LONGEST) if path.endswith(f"{part}.py"))
        return next(longest, len(LONGEST)), -sizes[item.path], path

    items.sort(key=sort_key)


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
