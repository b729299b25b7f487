"""Models that a scale omits or replaces by proxies, and pretrained runs."""

from pathlib import Path

import pytest
import yaml

from difftransformer.config.artifacts import ArtifactConfig, typed_artifact
from difftransformer.config.evaluations import AnySuite
from difftransformer.config.project import RunEntry
from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.scales import Proxies, claims_on_proxies, with_proxies
from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError

ARTIFACT = """
title: T
description: d
sections:
  - title: S
    evaluation: language_understanding
    suites: [lm]
    baseline: big
    rows: [{run: other}, {run: big}, {run: bigger, baseline: big}]
table: {caption: c}
"""
RUNS = {name: RunEntry(label=name) for name in ("big", "bigger", "other", "small", "larger")}


def artifact() -> ArtifactConfig:
    return typed_artifact(yaml.safe_load(ARTIFACT), "t.yaml")


def resolved(proxies: Proxies) -> ArtifactConfig:
    """The artifact at a scale with these stand-ins."""
    return with_proxies(proxies, {"t": artifact()}, RUNS, "tiny.yaml")["t"]


def test_proxies_take_rows_and_keep_the_published_values() -> None:
    replaced = resolved({"t": {"big": "small", "bigger": "larger", "other": None}})
    (part,) = replaced.sections
    rows = [(row.run, row.baseline, row.paper) for row in part.rows]
    assert rows == [("small", None, "big"), ("larger", "small", "bigger")]
    assert part.baseline == "small"


def test_claims_follow_the_runs_of_proxies(repository: Path) -> None:
    claims = ConfigResolver.load(repository / "config", {"scale": "gpu"}).registry.claims
    proxies = {"table2": {"recall_diff": "diff", "recall_transformer": None}}
    followed = claims_on_proxies(proxies, claims)
    (contrast,) = followed["V1.needles"].contrasts
    (before,) = claims["V1.needles"].contrasts
    assert (contrast.row, contrast.baseline) == ("diff", before.baseline)
    others = [name for name, claim in claims.items() if claim.artifact != "table2"]
    assert others and all(followed[name] == claims[name] for name in others)


def test_without_proxies_nothing_changes() -> None:
    assert resolved({}) == resolved({"t": {}}) == artifact()


@pytest.mark.parametrize(
    ("proxies", "complaint"),
    [
        ({"u": {}}, "proxies: unknown artifact 'u'"),
        ({"t": {"bgi": "small"}}, r"proxies\.t: 'bgi' is none of its rows; did you mean 'big'"),
        ({"t": {"big": "smal"}}, r"t\.big: unknown run 'smal'; did you mean 'small'"),
        (
            {"t": {"big": "small", "bigger": "small"}},
            r"proxies\.t: section 'S': a run stands twice",
        ),
        ({"t": dict.fromkeys(("big", "bigger", "other"))}, "section 'S': no rows are left"),
    ],
)
def test_what_cannot_be_a_proxy(proxies: Proxies, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        resolved(proxies)


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
            AnySuite, {"kind": "language_understanding", "tasks": ["hellaswg"]}, str(Path("e"))
        )
