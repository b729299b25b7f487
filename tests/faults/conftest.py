"""One undisturbed build for all tests, and copies of it to disturb."""

import shutil
from pathlib import Path

import pytest
from attempts import TRAINED, Calls, MakeRebuild, Rebuild, calls
from small_workflow import Checkout

import difftransformer.evaluations.validation_slices.measure
import difftransformer.training.pretrain  # noqa: F401


@pytest.fixture(scope="session")
def job_calls(finished: Checkout) -> Calls:
    return calls(finished.folder)


@pytest.fixture
def rebuild(tmp_path: Path, finished: Checkout, job_calls: Calls) -> MakeRebuild:
    """A copy of the finished results, without the parts that are named."""

    def make(*without: str, folder: Path = tmp_path) -> Rebuild:
        return Rebuild(folder, finished.folder / "results" / "smoke", job_calls).drop(*without)

    return make


@pytest.fixture
def untrained(rebuild: MakeRebuild) -> Rebuild:
    """Everything but the training of `diff` and what shows it."""
    return rebuild(*TRAINED)


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory, finished: Checkout, job_calls: Calls) -> Path:
    """State folders of a training that was killed past the middle."""
    made = Rebuild(
        tmp_path_factory.mktemp("stopped"), finished.folder / "results" / "smoke", job_calls
    ).drop(*TRAINED)
    made.kill_at(150)
    assert len(made.checkpoints()) >= 2
    return made.state


@pytest.fixture
def half_trained(untrained: Rebuild, stopped: Path) -> Rebuild:
    """A training of `diff` that was killed past the middle, with whole checkpoints."""
    shutil.copytree(stopped, untrained.state)
    return untrained
