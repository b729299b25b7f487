"""Fixtures of the reports: made-up results of everything, and every figure drawn from them."""

from pathlib import Path

import pytest
from fake_results import FakeResults
from fake_slices import artifact_slice, declarations

from difftransformer.reporting.figure_job import build_figure

FIGURES = [name for name, one in declarations().artifacts.items() if one.figure]


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> FakeResults:
    """Everything, three seeds; tests only read it."""
    return FakeResults(tmp_path_factory.mktemp("tiny")).everything()


@pytest.fixture(scope="session")
def drawn(fake: FakeResults, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every figure, drawn once."""
    folder = tmp_path_factory.mktemp("drawn")
    for name in FIGURES:
        artifact = artifact_slice(name, "figure")
        build_figure(artifact, fake.results, folder / name)
    return folder


@pytest.fixture
def small(tmp_path: Path) -> FakeResults:
    """An empty set of results to fill."""
    return FakeResults(tmp_path / "tiny")
