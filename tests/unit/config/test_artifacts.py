from pathlib import Path
from typing import Any

import pytest

from difftransformer.config.artifact_slices import (
    ArtifactSlice,
    Declarations,
    SweepRow,
    check_artifact,
    slice_artifact,
)
from difftransformer.config.artifacts import ClaimConfig, declared_claims, typed_artifact
from difftransformer.config.papers import PapersFile, PaperTable
from difftransformer.config.resolve import Catalogue
from difftransformer.config.validation import validate
from difftransformer.config.yaml_files import read_yaml
from difftransformer.errors import ConfigError

CONFIG = Path(__file__).parents[3] / "config"


def load(kind: Any, name: str) -> Any:
    return validate(kind, read_yaml(CONFIG / name), name)


def artifact_file(name: str) -> dict[str, Any]:
    return read_yaml(CONFIG / "artifacts" / f"{name}.yaml")


@pytest.fixture(scope="module")
def declared() -> Declarations:
    catalogue = Catalogue.load(CONFIG, {"scale": "tiny"})
    return Declarations(
        artifacts=catalogue.artifacts,
        labels={run: entry.label for run, entry in catalogue.runs.items()},
    )


def sliced(declared: Declarations, name: str = "table6", **changes: Any) -> ArtifactSlice:
    known = {"kind": "table", "scale": "tiny", "seeds": [0, 1], "facts": {}} | changes
    return slice_artifact(declared, name, **known)


def changed(declared: Declarations, name: str, **update: Any) -> Declarations:
    artifact = declared.artifacts[name].model_copy(update=update)
    return Declarations({**declared.artifacts, name: artifact}, declared.labels)


def test_the_files_of_the_repository_fit_together(declared: Declarations) -> None:
    for name, artifact in declared.artifacts.items():
        check_artifact(declared, name)
        assert "\n" not in artifact.description
    owners = declared_claims(declared.artifacts, "here")
    assert owners == {name: declared.claim(name).artifact for name in owners}
    for name, artifact in declared.artifacts.items():
        assert not set(artifact.shows_claims) & set(artifact.claims), name


def test_a_slice_holds_everything_and_survives_json(declared: Declarations) -> None:
    slice = sliced(declared, facts={"diff": {"heads": 2, "head_dim": 32, "norm": True}})
    rows = {row.run: row for row in slice.sections[0].rows}
    assert rows["diff"].label == "DIFF" and rows["diff"].facts["heads"] == 2
    assert rows["diff"].against == "transformer" and rows["transformer"].against is None
    assert slice.paper is not None and slice.paper.rows["diff"].values["valid"] == 3.062
    assert list(slice.claims) == list(declared.artifacts["table6"].claims)
    assert {claim.artifact for claim in slice.claims.values()} == {"table6"}
    assert ArtifactSlice.model_validate_json(slice.model_dump_json()) == slice


def test_a_figure_is_not_touched_by_its_tables_caption(declared: Declarations) -> None:
    artifact = declared.artifacts["table6"]
    assert artifact.table is not None
    edited = changed(
        declared, "table6", table=artifact.table.model_copy(update={"caption": "another"})
    )
    assert sliced(edited, kind="figure") == sliced(declared, kind="figure")
    assert sliced(edited) != sliced(declared)


def test_an_ablation_owns_its_runs_and_reads_both_tasks(declared: Declarations) -> None:
    artifact = declared.artifacts["ablation_head_count"]
    assert artifact.interventions == ["transformer_halved_heads", "recall_transformer_halved_heads"]
    rows = {part.suites[0]: {row.run for row in part.rows} for part in artifact.sections}
    assert "recall_diff" in rows["recall"] and "diff" not in rows["recall"]


def test_the_scale_decides_what_is_swept(declared: Declarations) -> None:
    rates = {
        run: [SweepRow(run=run, run_id=f"sweep_{run}_0", learning_rate=1e-3, chosen=True)]
        for run in ("diff", "recall_diff")
    }
    slice = sliced(declared, "lr_sweep", sweeps=rates)
    assert [[row.run for row in part.rows] for part in slice.sections] == [
        ["diff"],
        ["recall_diff"],
    ]
    with pytest.raises(ConfigError, match="the scale sweeps none of"):
        sliced(declared, "lr_sweep")


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"paper": "tabel1"}, r"table6\.yaml: paper: unknown artifact .*did you mean 'table1'"),
        (
            {"shows_claims": ["R.1"]},
            r"table6\.yaml: claims\.R\.1\.row: 'recall_diff' is none of its rows",
        ),
    ],
)
def test_unknown_names_are_one_line(
    declared: Declarations, update: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        sliced(changed(declared, "table6", **update))
    assert "\n" not in str(error.value)


def test_an_unknown_run_is_named_with_its_place(declared: Declarations) -> None:
    part = declared.artifacts["table6"].sections[0]
    rows = [*part.rows[:3], part.rows[3].model_copy(update={"run": "dif"})]
    edited = changed(declared, "table6", sections=[part.model_copy(update={"rows": rows})])
    with pytest.raises(
        ConfigError, match=r"sections\[0\]\.rows\[3\]\.run: unknown run 'dif'.*'diff'"
    ):
        sliced(edited)


def test_an_unknown_artifact_or_form_is_named(declared: Declarations) -> None:
    with pytest.raises(ConfigError, match="unknown artifact 'tabel6'; did you mean 'table6'"):
        sliced(declared, "tabel6")
    with pytest.raises(ConfigError, match=r"ablation_head_count\.yaml: has no figure"):
        sliced(declared, "ablation_head_count", kind="figure")


SECTION = {
    "title": "t", "measurement": "validation_slices", "suites": ["s"],
    "rows": [{"run": "a"}, {"run": "b"}],
}  # fmt: skip
CLAIM = {
    "text": "t", "source": "s", "metric": "valid", "row": "a", "against": "b", "test": "paired_t",
}  # fmt: skip
ARTIFACT = {"title": "T", "description": "d", "table": {"caption": "c"}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"against": "c"}, r"sections\[0\]: against: 'c' is none of the rows"),
        ({"rows": [{"run": "a"}, {"run": "a"}]}, r"sections\[0\]: a run stands twice"),
        ({"rows": []}, "at least 1 item"),
        ({"meassurement": "x"}, "unknown key; did you mean 'measurement'"),
        ({"measurement": "validation_slice"}, "measurement: unknown .*did you mean 'validation_sl"),
        ({"measurement": 3}, r"sections\[0\]\.measurement: needs text, got 3"),
        ({"suites": []}, r"suites: measurement validation_slices reads exactly one, got \[\]"),
        ({"measurement": "training_loss"}, r"suites: .* training_loss reads none, got \['s'\]"),
        ({"options": {"metric": "loss"}}, r"sections\[0\]\.options: metric: unknown key"),
        ({"options": ["loss"]}, r"sections\[0\]\.options: needs a mapping of keys, got \['loss'\]"),
        (
            {"measurement": "needles", "options": {"by": "lenght"}},
            r"sections\[0\]\.options: by: input should be 'setting' or 'length', got 'lenght'",
        ),
        (
            {"measurement": "outliers"},
            r"sections\[0\]\.options: of: required key is missing",
        ),
        (
            {"rows": [{"run": "a", "twin": "b"}]},
            r"rows\[0\]\.twin: measurement validation_slices has no use for one",
        ),
        (
            {"measurement": "scaling", "options": {"by": "size", "read_at": 0.5}},
            r"sections\[0\]\.family: measurement scaling needs one",
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"claims": {"T6.1": CLAIM}}, "claims.T6.1: table6 has it too; rename one"),
        ({"shows_claims": ["T6.11"]}, "shows_claims: unknown claim 'T6.11'; did you mean 'T6.1'"),
    ],
)
def test_a_claim_is_declared_once(
    declared: Declarations, change: dict[str, Any], message: str
) -> None:
    raw = ARTIFACT | {"sections": [SECTION]} | change
    artifacts = {**declared.artifacts, "mine": typed_artifact(raw, "mine.yaml")}
    with pytest.raises(ConfigError) as error:
        declared_claims(artifacts, "config/artifacts")
    assert str(error.value).startswith("config/artifacts/mine.yaml: ")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_margin_belongs_to_tests_that_have_one() -> None:
    claims = artifact_file("table6")["claims"]
    for name, change in (("T6.1", {"margin": 0.1}), ("T6.3", {"margin": None})):
        with pytest.raises(ConfigError, match="margin is for equivalence and noninferiority"):
            validate(ClaimConfig, claims[name] | change, "table6.yaml")


def test_interventions_are_rows() -> None:
    raw = artifact_file("ablation_head_count") | {"interventions": ["diff_lambda_0_8"]}
    with pytest.raises(ConfigError, match="interventions are not among the rows"):
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


def test_published_sizes_are_what_their_dimensions_give() -> None:
    for name, size in load(PapersFile, "papers.yaml").sizes.items():
        d, ffn = size.d_model, size.ffn_dim or 8 / 3 * size.d_model
        counted = size.num_layers * (4 * d * d + 3 * d * ffn) + size.vocab_size * d
        assert size.counted_parameters == round(counted)
        agrees = abs(counted / size.stated_parameters - 1) < 0.01
        assert agrees == (name != "3B"), name
        fits = size.diff_heads * 2 * size.head_dim == d
        assert fits == (name != "830M"), name
