"""The configurations that every contract test walks."""

from typing import Any

import pytest
from small_layers import configurations

from difftransformer.models.kernels import fused

CALLS = ("diff_v1-gqa", "diff_v2-gqa", "dint-mqa", "gpt_oss_sink-gqa")
"""One for each way in which a kernel is called; in Triton's interpreter all take minutes."""


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.exhaustive] if fused.interpreted() and name not in CALLS else []


@pytest.fixture(
    params=[pytest.param(own, id=name, marks=_marks(name)) for name, own in configurations()]
)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    actual: dict[str, Any] = request.param
    return actual
