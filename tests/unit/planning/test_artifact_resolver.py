"""Resolved configs of tables and figures, and checks of the names in them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.resolved_artifacts import ResolvedArtifact, SweepRow
from difftransformer.errors import ConfigError
from difftransformer.planning.artifact_resolver import ArtifactResolver

CONFIG = Path(__file__).parents[3] / "config"


@pytest.fixture(scope="module")
def declared() -> ArtifactResolver:
    resolver = ConfigResolver.load(CONFIG, {"scale": "tiny"})
    return ArtifactResolver(
        artifacts=resolver.artifacts,
        labels={run: entry.label for run, entry in resolver.runs.items()},
        replications=resolver.papers.replications,
    )


def sliced(declared: ArtifactResolver, name: str = "table6", **changes: Any) -> ResolvedArtifact:
    arguments = {"kind": "table", "scale": "tiny", "seeds": [0, 1], "facts": {}} | changes
    return declared.resolve(name, **arguments)


def changed(declared: ArtifactResolver, name: str, **update: Any) -> ArtifactResolver:
    artifact = declared.artifacts[name].model_copy(update=update)
    return ArtifactResolver({**declared.artifacts, name: artifact}, declared.labels)


def test_the_files_of_the_repository_fit_together(declared: ArtifactResolver) -> None:
    for name, artifact in declared.artifacts.items():
        declared.check(name)
        assert "\n" not in artifact.description


def test_a_slice_holds_everything_and_survives_json(declared: ArtifactResolver) -> None:
    slice = sliced(declared, facts={"diff": {"heads": 2, "head_dim": 32, "norm": True}})
    rows = {row.run: row for row in slice.sections[0].rows}
    assert rows["diff"].label == "DIFF" and rows["diff"].facts["heads"] == 2
    assert rows["diff"].baseline == "transformer" and rows["transformer"].baseline is None
    assert slice.paper is not None and slice.paper.rows["diff"].values["valid"] == 3.062
    assert ResolvedArtifact.model_validate_json(slice.model_dump_json()) == slice


def test_only_sections_that_show_replications_get_them(declared: ArtifactResolver) -> None:
    (section,) = sliced(declared, "evidence").sections
    assert section.replications == list(declared.replications) and section.replications
    other = [
        replication.model_copy(update={"paper": "diff_v2"}) for replication in declared.replications
    ]
    (section,) = sliced(replace(declared, replications=other), "evidence").sections
    assert section.replications == []
    assert not any(part.replications for part in sliced(declared).sections)


def test_options_that_name_a_missing_row_are_refused(declared: ArtifactResolver) -> None:
    (part,) = declared.artifacts["evidence"].sections
    rows = [row for row in part.rows if row.run != "diff_lambda_0"]
    spoilt = changed(declared, "evidence", sections=[part.model_copy(update={"rows": rows})])
    line = r"evidence\.yaml: sections\[0\]\.options: pairs\[1\]\.baseline: 'diff_lambda_0' is none"
    with pytest.raises(ConfigError, match=line) as error:
        spoilt.check("evidence")
    assert "\n" not in str(error.value)


def test_a_figure_is_not_touched_by_its_tables_caption(declared: ArtifactResolver) -> None:
    artifact = declared.artifacts["table6"]
    assert artifact.table is not None
    edited = changed(
        declared, "table6", table=artifact.table.model_copy(update={"caption": "another"})
    )
    assert sliced(edited, kind="figure") == sliced(declared, kind="figure")
    assert sliced(edited) != sliced(declared)


def test_an_ablation_owns_its_runs_and_reads_both_tasks(declared: ArtifactResolver) -> None:
    artifact = declared.artifacts["ablation_head_count"]
    assert artifact.owned_runs == ["transformer_halved_heads", "recall_transformer_halved_heads"]
    rows = {part.suites[0]: {row.run for row in part.rows} for part in artifact.sections}
    assert "recall_diff" in rows["recall"] and "diff" not in rows["recall"]


def test_the_scale_decides_what_is_swept(declared: ArtifactResolver) -> None:
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


def test_an_unknown_published_table_is_one_line(declared: ArtifactResolver) -> None:
    line = r"table6\.yaml: paper: unknown artifact .*did you mean 'table1'"
    with pytest.raises(ConfigError, match=line) as error:
        sliced(changed(declared, "table6", paper="tabel1"))
    assert "\n" not in str(error.value)


def test_an_unknown_run_is_named_with_its_location(declared: ArtifactResolver) -> None:
    part = declared.artifacts["table6"].sections[0]
    rows = [*part.rows[:3], part.rows[3].model_copy(update={"run": "dif"})]
    edited = changed(declared, "table6", sections=[part.model_copy(update={"rows": rows})])
    with pytest.raises(
        ConfigError, match=r"sections\[0\]\.rows\[3\]\.run: unknown run 'dif'.*'diff'"
    ):
        sliced(edited)


def test_an_unknown_artifact_or_form_is_named(declared: ArtifactResolver) -> None:
    with pytest.raises(ConfigError, match="unknown artifact 'tabel6'; did you mean 'table6'"):
        sliced(declared, "tabel6")
    with pytest.raises(ConfigError, match=r"ablation_head_count\.yaml: has no figure"):
        sliced(declared, "ablation_head_count", kind="figure")
