"""The configurations that every contract test walks."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # pytest's import mode importlib leaves it out
from small_layers import configurations


@pytest.fixture(params=[pytest.param(options, id=name) for name, options in configurations()])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found
