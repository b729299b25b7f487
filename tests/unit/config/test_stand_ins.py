"""What a scale leaves out, and what stands in; runs that are models from elsewhere."""

from pathlib import Path

import pytest
import yaml

from difftransformer.config.artifacts import ArtifactConfig, ArtifactsFile, ClaimsFile
from difftransformer.config.evaluation import SuiteConfig
from difftransformer.config.project import RunEntry
from difftransformer.config.stand_ins import (
    StandIns,
    check_stand_ins,
    stand_in_claim,
    stand_in_rows,
)
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
RUNS = ("big", "bigger", "other", "small", "larger")


def artifact() -> ArtifactConfig:
    found: ArtifactsFile = validate(ArtifactsFile, yaml.safe_load(ARTIFACTS), "file")
    return found.artifacts["t"]


def test_stand_ins_take_rows_and_claims_and_keep_the_published_values() -> None:
    runs = {"big": "small", "bigger": "larger", "other": None}
    (part,) = stand_in_rows(artifact(), runs).sections
    found = [(row.run, row.against, row.paper) for row in part.rows]
    assert found == [("small", None, "big"), ("larger", "small", "bigger")]
    assert part.against == "small"
    claims: ClaimsFile = validate(ClaimsFile, yaml.safe_load(CLAIMS), "file")
    claim = stand_in_claim(claims.claims["C"], {"t": runs})
    assert (claim.row, claim.against) == ("larger", "small")
    assert stand_in_claim(claims.claims["C"], {"other": runs}) == claims.claims["C"]


def test_without_stand_ins_nothing_changes() -> None:
    assert stand_in_rows(artifact(), {}) == artifact()


@pytest.mark.parametrize(
    ("stand_ins", "complaint"),
    [
        ({"u": {}}, "stand_ins: unknown artifact 'u'"),
        ({"t": {"bgi": "small"}}, r"stand_ins\.t: 'bgi' is none of its rows; did you mean 'big'"),
        ({"t": {"big": "smal"}}, r"t\.big: unknown run 'smal'; did you mean 'small'"),
        (
            {"t": {"big": "small", "bigger": "small"}},
            r"stand_ins\.t: section 'S': a run stands twice",
        ),
        ({"t": dict.fromkeys(("big", "bigger", "other"))}, "section 'S': no rows are left"),
    ],
)
def test_what_cannot_stand_in(stand_ins: StandIns, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_stand_ins(stand_ins, {"t": artifact()}, RUNS, "tiny.yaml")


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
