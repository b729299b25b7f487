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
from difftransformer.config.artifacts import ArtifactsFile, ClaimsFile, SectionConfig
from difftransformer.config.paper_values import PaperFile, PaperTable
from difftransformer.config.resolve import Catalogue
from difftransformer.config.validation import validate
from difftransformer.config.yaml_files import read_yaml
from difftransformer.errors import ConfigError

CONFIG = Path(__file__).parents[3] / "config"


def load(kind: Any, name: str) -> Any:
    return validate(kind, read_yaml(CONFIG / name), name)


@pytest.fixture(scope="module")
def declared() -> Declarations:
    catalogue = Catalogue.load(CONFIG, {"scale": "tiny"})
    return Declarations(
        artifacts=catalogue.artifacts,
        claims=catalogue.claims.claims,
        paper=catalogue.paper.tables,
        labels={run: entry.label for run, entry in catalogue.runs.items()},
    )


def sliced(declared: Declarations, name: str = "table6", **changes: Any) -> ArtifactSlice:
    known = {"kind": "table", "scale": "tiny", "seeds": [0, 1], "facts": {}} | changes
    return slice_artifact(declared, name, **known)


def changed(declared: Declarations, name: str, **update: Any) -> Declarations:
    artifact = declared.artifacts[name].model_copy(update=update)
    return Declarations(
        {**declared.artifacts, name: artifact}, declared.claims, declared.paper, declared.labels
    )


def test_the_files_of_the_repository_fit_together(declared: Declarations) -> None:
    for name, artifact in declared.artifacts.items():
        check_artifact(declared, name)
        assert "\n" not in artifact.description
    judged = {claim for artifact in declared.artifacts.values() for claim in artifact.claims}
    assert judged == set(declared.claims)
    for name, claim in declared.claims.items():
        assert name in declared.artifacts[claim.artifact].claims


def test_a_slice_holds_everything_and_survives_json(declared: Declarations) -> None:
    slice = sliced(declared, facts={"diff": {"heads": 2, "head_dim": 32, "norm": True}})
    rows = {row.run: row for row in slice.sections[0].rows}
    assert rows["diff"].label == "DIFF" and rows["diff"].facts["heads"] == 2
    assert rows["diff"].against == "transformer" and rows["transformer"].against is None
    assert slice.paper is not None and slice.paper.rows["diff"].values["valid"] == 3.062
    assert list(slice.claims) == declared.artifacts["table6"].claims
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
        ({"paper": "diff_v1_tabel6"}, r"table6\.paper: unknown .*did you mean 'diff_v1_table6'"),
        ({"claims": ["T6.11"]}, r"table6\.claims: unknown claim 'T6.11'; did you mean"),
        ({"claims": ["R.1"]}, r"R\.1 is about row 'recall_diff', which is none of its rows"),
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
    with pytest.raises(ConfigError, match="ablation_head_count: has no figure"):
        sliced(declared, "ablation_head_count", kind="figure")


SECTION = {
    "title": "t", "measures": "language_modelling", "suites": ["s"],
    "rows": [{"run": "a"}, {"run": "b"}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "raw", "message"),
    [
        (SectionConfig, SECTION | {"against": "c"}, "against: 'c' is none of the rows"),
        (SectionConfig, SECTION | {"rows": [{"run": "a"}, {"run": "a"}]}, "stands twice"),
        (SectionConfig, SECTION | {"suites": []}, "read exactly one"),
        (SectionConfig, SECTION | {"metric": "loss"}, "metric belongs to"),
        (SectionConfig, SECTION | {"meassures": "x"}, "unknown key; did you mean 'measures'"),
        (SectionConfig, SECTION | {"rows": []}, "at least 1 item"),
    ],
)
def test_sections_are_checked(kind: Any, raw: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(kind, raw, "here")


def test_a_margin_belongs_to_tests_that_have_one() -> None:
    claims = read_yaml(CONFIG / "claims.yaml")["claims"]
    for name, change in (("T6.1", {"margin": 0.1}), ("T6.3", {"margin": None})):
        raw = {"claims": {name: claims[name] | change}}
        with pytest.raises(ConfigError, match="margin is for equivalence and noninferiority"):
            validate(ClaimsFile, raw, "claims.yaml")


def test_interventions_are_rows() -> None:
    raw = read_yaml(CONFIG / "artifacts.yaml")
    raw["artifacts"]["ablation_head_count"]["interventions"] = ["diff_lambda_0_8"]
    with pytest.raises(ConfigError, match="interventions are not among the rows"):
        validate(ArtifactsFile, raw, "artifacts.yaml")


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
    for name, size in load(PaperFile, "paper_values.yaml").sizes.items():
        d, ffn = size.d_model, size.ffn_dim or 8 / 3 * size.d_model
        counted = size.num_layers * (4 * d * d + 3 * d * ffn) + size.vocab_size * d
        assert size.counted_parameters == round(counted)
        agrees = abs(counted / size.stated_parameters - 1) < 0.01
        assert agrees == (name != "3B"), name
        fits = size.diff_heads * 2 * size.head_dim == d
        assert fits == (name != "830M"), name
