from pathlib import Path

import pytest
from fake_results import FakeResults


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> FakeResults:
    """Everything, three seeds; tests only read it."""
    return FakeResults(tmp_path_factory.mktemp("tiny")).everything()


@pytest.fixture
def small(tmp_path: Path) -> FakeResults:
    """An empty set of results to fill."""
    return FakeResults(tmp_path / "tiny")
