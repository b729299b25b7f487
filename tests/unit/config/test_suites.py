"""Evaluation suites in YAML."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from difftransformer.config.evaluations import AnySuite, EvaluationConfig, evaluation, evaluations
from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError
from difftransformer.evaluations.recall.settings import Suite as Recall
from difftransformer.evaluations.validation_slices.settings import Suite as ValidationSlices

FILE = Path(__file__).parents[3] / "config" / "evaluations.yaml"


def read(raw: dict[str, Any]) -> Any:
    return validate(AnySuite, raw, "evaluations.yaml: suites.x")


def test_kind_chooses_the_suite() -> None:
    assert isinstance(read({"kind": "validation_slices", "seq_len": 8}), ValidationSlices)
    assert isinstance(read({"kind": "recall", "needles": [1]}), Recall)


def test_defaults_of_what_the_paper_leaves_open() -> None:
    suite = read({"kind": "validation_slices", "seq_len": 8})
    assert (suite.n, suite.max_count) == (2, 1250)
    for name in ("n", "max_count"):
        source = ValidationSlices.model_fields[name].json_schema_extra["source"]
        assert "unverified" in source


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ({"kind": "validation_slices"}, "seq_len: required key is missing"),
        ({"kind": "validation_slices", "seq_len": 0}, "seq_len"),
        ({"kind": "validation_slices", "seq_len": 8, "n": 1}, "n: "),
        ({"kind": "validation_slices", "seq_length": 8}, "did you mean 'seq_len'"),
        ({"kind": "validation_slice", "seq_len": 8}, "validation_slices"),
        ({"seq_len": 8}, "kind"),
        ({"kind": "recall", "needles": []}, "needles"),
        ({"kind": "recall", "needles": [2, 2]}, "must be distinct"),
        ({"kind": "recall", "needles": [0]}, "needles"),
        ({"kind": "nll_by_position", "length": 16}, "first_position 16 must be below length 16"),
        ({"kind": "nll_by_position", "length": 64, "positions": 1}, "positions"),
        ({"kind": "recall", "needles": [1], "device": "gpu"}, "device"),
        ({"kind": "recall", "needles": [1], "samples": "many"}, "samples"),
        ({"kind": "recall", "needles": [1], "backend": "fused"}, "fused computes in half precisi"),
    ],
)
def test_bad_suite_is_one_line_that_names_the_key(raw: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(raw)
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_suites_of_the_project_are_whole() -> None:
    suites = yaml.safe_load(FILE.read_text())["suites"]
    checked = {name: read(raw) for name, raw in suites.items()}
    assert checked["validation_slices"].kind == "validation_slices"
    assert checked["recall"].kind == "recall"


def test_slice_survives_json() -> None:
    slice = EvaluationConfig(
        scale="tiny", run="diff", suite="x", config=read({"kind": "recall", "needles": [1, 4]})
    )
    assert EvaluationConfig.model_validate_json(slice.model_dump_json()) == slice


def test_every_setting_is_documented() -> None:
    for name in evaluations():
        spec = evaluation(name)
        for kind in filter(None, (spec.options, spec.suite, spec.timing)):
            for key, field in kind.model_fields.items():
                assert field.description, (name, kind.__name__, key)
