"""The plan: targets, and the status of each table and figure of the papers."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.resolved_artifacts import TestedClaims
from difftransformer.planning import plan as planning
from difftransformer.planning.artifacts import Artifacts
from difftransformer.planning.contents import paper_contents
from difftransformer.planning.plan import Plan


@pytest.mark.parametrize(("name", "tables", "figures"), [("diff_v1", 10, 11), ("dex", 9, 19)])
def test_every_table_and_figure_of_a_paper_is_listed(
    plan: Plan, name: str, tables: int, figures: int
) -> None:
    names = [item.item for item in plan.resolver.papers.papers[name].items]
    theirs = [title for title in names if title != "Ours"]
    assert list(dict.fromkeys(title.rstrip("abc") for title in theirs)) == [
        *(f"Table {i}" for i in range(1, tables + 1)),
        *(f"Figure {i}" for i in range(1, figures + 1)),
    ]


def test_every_table_and_figure_of_the_papers_has_a_status(plan: Plan) -> None:
    for paper_status in paper_contents(plan.artifacts, ["table1"]):
        for item in paper_status.items:
            if item.artifact is None:
                assert item.states in (["nothing to measure"], ["not built yet"]) and item.note
            elif item.artifact not in plan.artifacts.available:
                assert item.states == ["needs scale"] and item.artifact == "v2_stability"
            elif item.artifact == "table1":
                assert item.states[0] == "built here"
                assert ("needs scale" in item.states) == (plan.jobs.scale not in ("gpu", "paper"))
            else:
                assert item.states == ["not in this report"]
                assert f"snakemake {item.artifact} --config scale={plan.jobs.scale}" in item.note


def test_a_paper_is_a_target_and_a_report(repository: Path) -> None:
    plan = Plan.load(repository / "config")
    printed = plan.groups["diff_v1"]
    assert {f"table{n}" for n in range(1, 11)} < set(printed) < set(plan.groups["all"])
    assert {"v2_loss", "v2_ablations", "v2_decoding"} < set(plan.groups["diff_v2"])
    assert "dex_figure7" in plan.groups["dex"]
    assert plan.requested_artifacts(["diff_v1", "v2_loss", "table6"]) == [*printed, "v2_loss"]
    assert (
        plan.requested_artifacts([])
        == plan.groups["default_targets"]
        == plan.requested_artifacts(["report", "results/x.svg"])
    )
    assert plan.groups["sweeps"] == ["lr_sweep", "lr_sweep_sizes", "lr_sweep_v2"]
    assert sorted(plan.groups["all"] + plan.groups["sweeps"]) == sorted(plan.artifacts.available)


def test_a_table_without_a_language_model_as_judge_says_so(repository: Path) -> None:
    plan = Plan.load(repository / "config")
    paper, *_ = paper_contents(plan.artifacts, ["table4", "table5"])
    states = {item.artifact: item.states for item in paper.items}
    assert states["table4"] == ["built here", "needs a judge"]
    assert states["table5"] == ["built here"]


def test_missing_settings_and_excluded_models_have_different_statuses(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "tiny"})
    artifacts = ["table1", "table4", "table8"]
    paper, *_ = paper_contents(_without_timings(plan.resolver), artifacts)
    statuses = {item.artifact: (item.states, item.note) for item in paper.items}
    assert statuses["table7"] == (["needs scale"], "Scale tiny has no setting for it.")
    states, words = statuses["table1"]
    assert states == ["built here", "needs scale"]
    rows = plan.resolver.runs
    assert (
        words
        == "Without "
        + ", ".join(
            rows[name].label
            for name in ("open_llama_3b_v2", "stablelm_base_alpha_3b_v2", "stablelm_3b_4e1t")
        )
        + "."
    )
    assert statuses["table8"] == (["built here"], "")  # other models stand in, none is left out
    resolver = replace(
        plan.resolver,
        project=plan.resolver.project.model_copy(update={"judge": ["lexical", "endpoint"]}),
    )
    paper, *_ = paper_contents(Plan(resolver).artifacts, ["table4"])
    assert next(item.states for item in paper.items if item.artifact == "table4") == ["built here"]


def test_only_complete_earlier_artifacts_are_reported(repository: Path, tmp_path: Path) -> None:
    plan = Plan.load(repository / "config", {"results": str(tmp_path)})
    (table,), (figure,) = plan.tables(["figure8"]), plan.figures(["figure8"])
    Path(table).parent.mkdir(parents=True)
    Path(table).touch()
    assert plan.earlier_artifacts(["table6"]) == []
    Path(figure).parent.mkdir(parents=True, exist_ok=True)
    Path(figure).touch()
    assert plan.earlier_artifacts(["table6"]) == ["figure8"]
    assert plan.earlier_artifacts(["figure8"]) == []


def test_an_unwritable_results_folder_is_named_and_not_created(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def required(results: Path) -> None:
        Plan.load(repository / "config", {"results": str(results)}).require_writable()

    required(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match=f"File exists: '{tmp_path}/file'"):
        required(tmp_path / "file")
    (tmp_path / "away").symlink_to("/nowhere/disk")
    with pytest.raises(FileExistsError, match=f"File exists: '{tmp_path}/away'"):
        required(tmp_path / "away")

    def refused(*_: object, **__: object) -> None:  # which root never is
        raise PermissionError(errno.EACCES, "Permission denied", "tmp1234")

    monkeypatch.setattr(planning, "TemporaryFile", refused)
    with pytest.raises(PermissionError, match=f"Permission denied: '{tmp_path}'"):
        required(tmp_path / "new")


def _without_timings(resolver: ConfigResolver) -> Artifacts:
    untimed = resolver.scale.model_copy(update={"timings": {}})
    return Plan(replace(resolver, scale=untimed)).artifacts


def test_claims_are_tested_on_the_requested_tables(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = Plan.load(repository / "config", {"scale": "smoke", "seeds": 2})
    file = Path(plan.verdicts_config_file(["evidence", "table6"]))  # the latter answers no question
    tested = TestedClaims.model_validate_json(file.read_bytes())
    (table,) = tested.tables
    assert (table.artifact, table.seeds) == ("evidence", plan.artifacts.seeds("evidence"))
    assert (
        tested.claims.keys() == plan.resolver.registry.claims.keys() and not tested.earlier_results
    )
