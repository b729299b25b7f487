"""What an evaluation may return, and what is said of anything else."""

from typing import Any

import numpy as np
import pytest
import torch

from difftransformer.errors import ConfigError
from difftransformer.evaluation.returned import as_measured, require_units
from difftransformer.evaluation.subject import Measured, means

RETURNS = "evaluations/recall: measure returns "


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ([0.5], "a list where metrics should be: return a dict of numbers by their names"),
        (None, "a NoneType where metrics should be"),
        (Measured([0.5], {}), "a list where metrics should be"),  # type: ignore[arg-type]
        ({"n2": [0.5]}, "a list as n2: make it one number, or None"),
        ({"n2": torch.ones(2)}, "a Tensor as n2: make it one number, or None"),
        ({"n2": "0.5"}, "a str as n2: make it one number, or None"),
        (Measured({"n2": 0.5}, {"n2": [1.0]}), "a dict of other things where units should"),  # type: ignore[dict-item]
        (Measured({"n2": 0.5}, [1.0]), "a list of other things where units should"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_metrics_is_refused_by_name(found: Any, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        as_measured(found, "recall")
    assert str(error.value).startswith(RETURNS + line) and "\n" not in str(error.value)


def test_metrics_become_plain_numbers() -> None:
    found = as_measured(
        {"a": 3, "b": None, "c": torch.tensor([0.5]), "d": np.float32(0.25)}, "recall"
    )
    assert found == Measured({"a": 3, "b": None, "c": 0.5, "d": 0.25}, {})
    assert [type(one) for one in found.metrics.values()] == [int, type(None), float, float]


@pytest.mark.parametrize(
    ("name", "values", "weights", "line"),
    [
        ("n2", [1.0, 0.0], None, None),
        ("n2", [2.0, 0.0], [3.0, 1.0], None),
        ("n2", [1.0, 1.0], None, "0.5 as n2, and rows of it that make 1: let"),
        ("n2", [1.0, 1.0], [0.0, 0.0], "0.5 as n2, and rows of it that make nan: let the metric"),
        ("n1", [1.0, 1.0], None, None),  # an undefined one
        ("m2", [1.0], None, "units of m2, which is none of its metrics; allowed: n1, n2"),
    ],
)
def test_units_make_their_metric(
    name: str, values: list[float], weights: list[float] | None, line: str | None
) -> None:
    found = Measured({"n1": None, "n2": 0.5}, {name: means("rows", values, weights)})
    if line is None:
        require_units(found, "recall")
        return
    with pytest.raises(ConfigError) as error:
        require_units(found, "recall")
    assert str(error.value).startswith(RETURNS + line)
