"""What people browse in MLflow: experiments, their columns, and links to the report."""

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient

from difftransformer.provenance.result import PerItemScores
from difftransformer.tracking.mlflow_runs import MlflowRuns
from difftransformer.tracking.run_context import JobIdentity, run_context, start_run
from difftransformer.tracking.sync import sync_tracking
from difftransformer.tracking.views import STAGES, artifact_tags

pytestmark = pytest.mark.usefixtures("workspace")


def test_store_has_one_experiment_per_stage(client: MlflowClient, uri: str) -> None:
    actual = {experiment.name: experiment for experiment in client.search_experiments()}
    assert set(actual) == {f"difftransformer/{stage}" for stage in STAGES}  # and no empty Default
    assert all(experiment.tags["mlflow.note.content"] for experiment in actual.values())


def test_view_of_another_version_is_replaced(
    client: MlflowClient, uri: str, tmp_path: Path
) -> None:
    made = client.get_experiment_by_name("difftransformer/evaluate")
    assert made is not None
    client.set_experiment_tag(made.experiment_id, "mlflow.sharedViewState.difftransformer", "{}")
    MlflowRuns(uri).experiment("evaluate")
    actual = client.get_experiment(made.experiment_id).tags
    view = json.loads(actual["mlflow.sharedViewState.difftransformer"])
    assert "tags.`suite`" in view["selectedColumns"]
    url = f"/#/experiments/{made.experiment_id}/runs?viewStateShareKey=difftransformer"
    url += "&workflowType=machine_learning"  # the layout for language models has no runs
    assert actual["mlflow.experimentKind"] == "custom_model_development"
    assert MlflowRuns(uri).views()["evaluate"] == url


def test_runs_are_tagged_with_the_tables_that_show_them(
    client: MlflowClient, uri: str, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    for stage, name, tags in (
        ("pretrain", "shown/0", {"rule": "pretrain"}),
        ("evaluate", "shown/0/suite", {"rule": "evaluate", "upstream": "pretrain-shown/0"}),
        ("pretrain", "unused/0", {"rule": "pretrain"}),
        ("table", "table6/table", {
            "rule": "table", "run": "table6", "upstream": "evaluate-shown/0/suite gone",
        }),
    ):  # fmt: skip
        tags |= {"scale": "tiny", "mlflow.note.content": "a run"}
        with start_run(stage, name, f"{stage}-{name}", results / stage / name, {}, tags, uri):
            pass
    sync_tracking(results, uri)
    label = "tags.`shown_in.table6` = 'yes'"
    ids = [experiment.experiment_id for experiment in client.search_experiments()]
    tagged = {run.info.run_name for run in client.search_runs(ids, label)}
    assert tagged == {"shown/0", "shown/0/suite"}
    assert not artifact_tags(client.search_runs(ids), served=True)  # once is enough
    link = "[table6](reports/tiny/table6.html)"

    def notes() -> dict[str, str]:
        actual = {run.info.run_name: run.data.tags for run in client.search_runs(ids)}
        return {name: actual[name].get("mlflow.note.content", "") for name in (*tagged, "unused/0")}

    assert all(notes()[name] == f"a run\n\nIn the report: {link}" for name in tagged)
    assert notes()["unused/0"] == "a run"
    elsewhere = artifact_tags(client.search_runs(ids), served=False)  # links would lead nowhere
    named = {tags["mlflow.note.content"] for tags in elsewhere.values()}
    assert named == {"a run\n\nIn the report: table6 at scale tiny"}


def test_the_key_metrics_of_evaluations_are_columns(
    client: MlflowClient, uri: str, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    for suite, metrics, per_item in (
        (
            "slices",
            {"tokens": 9, "loss": 3.0},
            {"loss": PerItemScores(item_type="windows", terms=[])},
        ),
        ("sinks", {"sink share": 0.5, "threshold": 0.1}, None),
    ):
        identity = JobIdentity("evaluate", "tiny", "a", "f" * 64, 0, suite)
        with run_context(
            identity, state=results / suite / "x", params={}, uri=uri, root=results
        ) as run:
            run.write_result(
                results / f"{suite}.json", "evaluation", metrics, {}, per_item=per_item
            )
    sync_tracking(results, uri)
    MlflowRuns(uri, results).experiment("evaluate")  # which leaves the columns
    experiment = client.get_experiment_by_name("difftransformer/evaluate")
    assert experiment is not None
    view = json.loads(experiment.tags["mlflow.sharedViewState.difftransformer"])
    columns = [name for name in view["selectedColumns"] if name.startswith("metrics.")]
    assert columns == ["metrics.`loss`", "metrics.`sink share`"]
