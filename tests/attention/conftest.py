"""The configurations that every contract test walks."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # pytest's import mode importlib leaves it out
from small_layers import configurations

from difftransformer.models.kernels import fused

CALLS = ("diff_v1-gqa", "diff_v2-gqa", "dint-mqa", "gpt_oss_sink-gqa")
"""One for each way in which variants call a kernel; in Triton's interpreter the rest take minutes."""


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.exhaustive] if fused.interpreted() and name not in CALLS else []


@pytest.fixture(
    params=[pytest.param(own, id=name, marks=_marks(name)) for name, own in configurations()]
)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found
