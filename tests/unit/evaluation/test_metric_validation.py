"""What an evaluation may return, and the errors on anything else."""

from typing import Any

import numpy as np
import pytest
import torch

from difftransformer.errors import ConfigError
from difftransformer.evaluation.context import EvalResult, per_item_scores
from difftransformer.evaluation.metric_validation import as_eval_result, validate_item_sums

RETURNS = "evaluations/recall: measure returns "


@pytest.mark.parametrize(
    ("returned", "line"),
    [
        ([0.5], "a list in place of metrics: return a dict of numbers by name"),
        (None, "a NoneType in place of metrics"),
        (EvalResult([0.5], {}), "a list in place of metrics"),  # type: ignore[arg-type]
        ({"n2": [0.5]}, "a list as n2: make it one number, or None"),
        ({"n2": torch.ones(2)}, "a Tensor as n2: make it one number, or None"),
        ({"n2": "0.5"}, "a str as n2: make it one number, or None"),
        (EvalResult({"n2": 0.5}, {"n2": [1.0]}), "a dict as per_item"),  # type: ignore[dict-item]
        (EvalResult({"n2": 0.5}, [1.0]), "a list as per_item"),  # type: ignore[arg-type]
    ],
)
def test_invalid_return_values_are_refused_by_name(returned: Any, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        as_eval_result(returned, "recall")
    assert str(error.value).startswith(RETURNS + line) and "\n" not in str(error.value)


def test_metrics_are_converted_to_plain_numbers() -> None:
    result = as_eval_result(
        {"a": 3, "b": None, "c": torch.tensor([0.5]), "d": np.float32(0.25)}, "recall"
    )
    assert result == EvalResult({"a": 3, "b": None, "c": 0.5, "d": 0.25}, {})
    assert [type(value) for value in result.metrics.values()] == [int, type(None), float, float]


@pytest.mark.parametrize(
    ("name", "values", "weights", "line"),
    [
        ("n2", [1.0, 0.0], None, None),
        ("n2", [2.0, 0.0], [3.0, 1.0], None),
        ("n2", [1.0, 1.0], None, "n2 = 0.5, but its rows give 1: "),
        ("n2", [1.0, 1.0], [0.0, 0.0], "n2 = 0.5, but its rows give nan: "),
        ("n1", [1.0, 1.0], None, None),  # an undefined one
        ("m2", [1.0], None, "per_item of m2, which is no metric; allowed: n1, n2"),
    ],
)
def test_per_item_scores_must_sum_to_their_metric(
    name: str, values: list[float], weights: list[float] | None, line: str | None
) -> None:
    result = EvalResult({"n1": None, "n2": 0.5}, {name: per_item_scores("rows", values, weights)})
    if line is None:
        validate_item_sums(result, "recall")
        return
    with pytest.raises(ConfigError) as error:
        validate_item_sums(result, "recall")
    assert str(error.value).startswith(RETURNS + line)
