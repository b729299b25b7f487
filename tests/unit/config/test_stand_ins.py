"""What a scale leaves out, and what stands in; runs that are models from elsewhere."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from difftransformer.config.artifacts import ArtifactsFile, ClaimsFile, PaperFile
from difftransformer.config.evaluation import SuiteConfig
from difftransformer.config.project import RunEntry
from difftransformer.config.stand_ins import Declared, at_scale, check_stand_ins
from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError

ARTIFACTS = """
artifacts:
  t:
    title: T
    description: d
    claims: [C]
    sections:
      - title: S
        measures: language_understanding
        suites: [lm]
        against: big
        rows: [{run: other}, {run: big}, {run: bigger, against: big}]
    table: {builder: b, caption: c}
"""
CLAIMS = """
claims:
  C: {text: t, source: s, artifact: t, metric: m, row: bigger, against: big, test: paired_t}
"""
PAPER = """
tables:
  p:
    title: P
    source: s
    scale: x
    rows: {big: {label: B, values: {m: 1}}, other: {label: O, values: {m: 2}}}
"""


def declared(stand_ins: dict[str, str | None]) -> Declared:
    def read(kind: Any, text: str) -> Any:
        return validate(kind, yaml.safe_load(text), "file")

    files = read(ArtifactsFile, ARTIFACTS), read(ClaimsFile, CLAIMS), read(PaperFile, PAPER)
    return at_scale(*files, stand_ins, "artifacts.yaml: artifacts")


def test_stand_ins_take_rows_claims_and_published_values() -> None:
    found = declared({"big": "small", "bigger": "larger", "other": None})
    (part,) = found.artifacts["t"].sections
    assert [(row.run, row.against) for row in part.rows] == [("small", None), ("larger", "small")]
    assert part.against == "small"
    claim = found.claims.claims["C"]
    assert (claim.row, claim.against) == ("larger", "small")
    assert set(found.paper.tables["p"].rows) == {"small", "other"}


def test_without_stand_ins_nothing_changes() -> None:
    found = declared({})
    assert found.artifacts == validate(ArtifactsFile, yaml.safe_load(ARTIFACTS), "a").artifacts


@pytest.mark.parametrize(
    ("stand_ins", "complaint"),
    [
        ({"big": "small", "bigger": "small"}, r"t\.sections\[0\]: shows a run twice"),
        (dict.fromkeys(("big", "bigger", "other")), r"t\.sections\[0\]: is left without rows"),
    ],
)
def test_a_section_must_stay_one(stand_ins: dict[str, str | None], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        declared(stand_ins)


@pytest.mark.parametrize(
    ("stand_ins", "complaint"),
    [
        ({"bgi": "small"}, "unknown run 'bgi'; did you mean 'big'"),
        ({"big": "smal"}, "unknown run 'smal'; did you mean 'small'"),
        ({"big": "small", "small": None}, "'small' is itself not built"),
    ],
)
def test_both_sides_are_runs(stand_ins: dict[str, str | None], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_stand_ins(stand_ins, {"big": 0, "small": 0}, "tiny.yaml: stand_ins")


def test_a_pretrained_entry_is_nothing_but_that() -> None:
    entry = validate(RunEntry, {"label": "L", "pretrained": "a/b", "dtype": "float16"}, "runs")
    model = entry.pretrained_model()
    assert (model.name, model.dtype, model.trust_remote_code) == ("a/b", "float16", False)
    assert validate(RunEntry, {"label": "L", "base": "x"}, "runs").pretrained_model() is None
    with pytest.raises(ConfigError, match=r"is not trained: take out \['base'\]"):
        validate(RunEntry, {"label": "L", "pretrained": "a/b", "base": "x"}, "runs")
    with pytest.raises(ConfigError, match=r"\['dtype'\] belong to a model with `pretrained`"):
        validate(RunEntry, {"label": "L", "base": "x", "dtype": "float16"}, "runs")


def test_an_unknown_task_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown task 'hellaswg'; did you mean 'hellaswag'"):
        validate(
            SuiteConfig, {"kind": "language_understanding", "tasks": ["hellaswg"]}, str(Path("e"))
        )
