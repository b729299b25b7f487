"""What tests of the scripts for a card share."""

from pathlib import Path

import pytest


@pytest.fixture
def gpu_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find the scripts by their names, as they find each other; what they set is undone."""
    monkeypatch.setenv("TRITON_INTERPRET", "")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks" / "gpu"))
