from pathlib import Path
from typing import Any

import pytest

from difftransformer.config.artifacts import read_artifacts, typed_artifact
from difftransformer.config.papers import (
    PaperItem,
    PapersFile,
    PaperTable,
    Replication,
    check_papers,
)
from difftransformer.config.validation import validate
from difftransformer.config.yaml_files import read_yaml
from difftransformer.errors import ConfigError

CONFIG = Path(__file__).parents[3] / "config"


def load(kind: Any, name: str) -> Any:
    return validate(kind, read_yaml(CONFIG / name), name)


def artifact_file(name: str) -> dict[str, Any]:
    return read_yaml(CONFIG / "artifacts" / f"{name}.yaml")


SECTION = {
    "title": "t", "evaluation": "validation_slices", "suites": ["s"],
    "rows": [{"run": "a"}, {"run": "b"}],
}  # fmt: skip
ARTIFACT = {"title": "T", "description": "d", "table": {"caption": "c"}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"baseline": "c"}, r"sections\[0\]: baseline: 'c' is none of the rows"),
        ({"rows": [{"run": "a"}, {"run": "a"}]}, r"sections\[0\]: a run stands twice"),
        ({"rows": []}, "at least 1 item"),
        ({"evaluatoin": "x"}, "unknown key; did you mean 'evaluation'"),
        ({"evaluation": "validation_slice"}, "evaluation: unknown .*did you mean 'validation_sl"),
        ({"evaluation": 3}, r"sections\[0\]\.evaluation: needs text, got 3"),
        ({"suites": []}, r"suites: evaluation validation_slices reads exactly one, got \[\]"),
        ({"evaluation": "training_loss"}, r"suites: .* training_loss reads none, got \['s'\]"),
        ({"options": {"metric": "loss"}}, r"sections\[0\]\.options: metric: unknown key"),
        ({"options": ["loss"]}, r"sections\[0\]\.options: needs a mapping of keys, got \['loss'\]"),
        (
            {"evaluation": "needles", "options": {"by": "lenght"}},
            r"sections\[0\]\.options: by: input should be 'setting' or 'length', got 'lenght'",
        ),
        (
            {"evaluation": "outliers"},
            r"sections\[0\]\.options: activation: required key is missing",
        ),
        (
            {"rows": [{"run": "a", "paired_run": "b"}]},
            r"rows\[0\]\.paired_run: evaluation validation_slices has no use for one",
        ),
        (
            {"evaluation": "scaling", "options": {"by": "size", "compare_at": 0.5}},
            r"sections\[0\]\.size_grid: evaluation scaling needs one",
        ),
    ],
)
def test_sections_are_checked(change: dict[str, Any], message: str) -> None:
    raw = ARTIFACT | {"sections": [SECTION | change]}
    with pytest.raises(ConfigError, match=message) as error:
        typed_artifact(raw, "config/artifacts/mine.yaml")
    assert str(error.value).startswith("config/artifacts/mine.yaml: sections[0]")
    assert "\n" not in str(error.value)


def test_a_table_a_figure_or_both() -> None:
    raw = {"title": "T", "description": "d", "sections": [SECTION]}
    with pytest.raises(ConfigError, match=r"mine\.yaml: an artifact needs a table, a figure or bo"):
        typed_artifact(raw, "mine.yaml")
    assert typed_artifact(raw | {"figure": {"caption": "c"}}, "mine.yaml").table is None


def test_interventions_are_rows() -> None:
    raw = artifact_file("ablation_head_count") | {"owned_runs": ["diff_lambda_0_8"]}
    with pytest.raises(ConfigError, match="owned_runs are not among the rows"):
        typed_artifact(raw, "ablation_head_count.yaml")


PAPER = {
    "title": "t", "source": "s", "scale": "c", "x": "tokens", "y": "loss",
    "series": {"diff": {"label": "DIFF", "x": [1.0, 2.0], "y": [4.0, 3.0]}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"series": {}, "x": None, "y": None}, "needs rows, series or both"),
        ({"x": None}, "give both with series, else none"),
        ({"series": {"diff": {"label": "D", "x": [1.0], "y": [4.0, 3.0]}}}, "1 values of x, but 2"),
        ({"series": {"diff": {"label": "D", "x": [2.0, 2.0], "y": [4.0, 3.0]}}}, "must ascend"),
    ],
)
def test_published_curves_are_checked(change: dict[str, Any], message: str) -> None:
    assert validate(PaperTable, PAPER, "here").series["diff"].y == [4.0, 3.0]
    with pytest.raises(ConfigError, match=message):
        validate(PaperTable, PAPER | change, "here")


REPLICATION = {
    "study": "w", "paper": "diff_v1", "model": "30M", "seeds": 4, "difference": -0.016,
    "low": -0.038, "high": 0.017, "note": "n", "source": "s",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"high": None}, "give low and high, with difference between them"),
        ({"difference": 0.02}, "give low and high, with difference between them"),
        ({"seeds": 1}, "one seed has no deviation, no low and no high"),
    ],
)
def test_replications_are_checked(change: dict[str, Any], message: str) -> None:
    assert validate(Replication, REPLICATION, "here").difference == -0.016
    with pytest.raises(ConfigError, match=message):
        validate(Replication, REPLICATION | change, "here")


def test_a_replication_is_of_a_listed_paper() -> None:
    papers = load(PapersFile, "papers.yaml")
    artifacts = read_artifacts(CONFIG / "artifacts", papers)
    strange = papers.replications[0].model_copy(update={"paper": "diff_v3"})
    with pytest.raises(ConfigError, match=r"replications\[0\]\.paper: unknown paper 'diff_v3'"):
        check_papers(papers.model_copy(update={"replications": [strange]}), artifacts, "p.yaml")


def test_replications_are_shown_of_a_listed_paper(tmp_path: Path) -> None:
    text = (CONFIG / "artifacts" / "evidence.yaml").read_text()
    spoilt = text.replace("replications_of: diff_v1", "replications_of: diff_v3")
    (tmp_path / "spoilt.yaml").write_text(spoilt)
    line = r"spoilt\.yaml: sections\[0\]\.options: unknown paper 'diff_v3'; did you"
    with pytest.raises(ConfigError, match=line):
        read_artifacts(tmp_path, load(PapersFile, "papers.yaml"))


def test_an_item_of_a_paper_says_one_thing_of_itself() -> None:
    item = {"item": "Table 1", "shows": "s"}
    for change in ({}, {"reason": "r", "missing": "m"}, {"artifact": "table1", "missing": "m"}):
        with pytest.raises(ConfigError, match=r"give one of artifact, reason .* and missing"):
            validate(PaperItem, item | change, "here")


def test_published_sizes_are_what_their_dimensions_give() -> None:
    for name, size in load(PapersFile, "papers.yaml").sizes.items():
        d, ffn = size.d_model, size.ffn_dim or 8 / 3 * size.d_model
        counted = size.num_layers * (4 * d * d + 3 * d * ffn) + size.vocab_size * d
        assert size.counted_parameters == round(counted)
        agrees = abs(counted / size.stated_parameters - 1) < 0.01
        assert agrees == (name != "3B"), name
        fits = size.diff_heads * 2 * size.head_dim == d
        assert fits == (name != "830M"), name
