"""Fixtures of the reports: synthetic results of all artifacts, and figures built from them."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from fake_configs import resolved_artifact
from fake_rest import made_up
from fake_results import FakeResults

from difftransformer.provenance.checksums import file_state
from difftransformer.provenance.result import read_result
from difftransformer.reporting import collect
from difftransformer.reporting.figure_job import build_figure

FIGURES = sorted(made_up("figure"))
WRITTEN = sorted({*FIGURES[::4], "v2_sinks"})
"""Figures that quick tests write to files; all are laid out."""


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeResults]:
    """Everything, three seeds; tests only read it, and each file once while it stays untouched."""
    read = cache(lambda path, state: read_result(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collect, "read_result", lambda path: read(path, file_state(path)))
        yield FakeResults(tmp_path_factory.mktemp("tiny")).all_results()


@pytest.fixture(scope="session")
def drawn(fake: FakeResults, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some figures as files, made once."""
    folder = tmp_path_factory.mktemp("drawn")
    for name in WRITTEN:
        artifact = resolved_artifact(name, "figure")
        build_figure(artifact, fake.results, folder / name)
    return folder


@pytest.fixture
def small(tmp_path: Path) -> FakeResults:
    """An empty set of results to fill."""
    return FakeResults(tmp_path / "tiny")
