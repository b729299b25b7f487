"""Runs that stayed behind where a machine was lost, against a real MLflow store on SQLite."""

import time
from pathlib import Path

import pytest
from mlflow import MlflowClient
from stored_runs import log, runs

from difftransformer.tracking.history import COPY
from difftransformer.tracking.sync import sync_tracking
from difftransformer.tracking.tracker import RunTracker

pytestmark = pytest.mark.usefixtures("workspace")


def on_a_machine(folder: Path, uri: str, name: str, copy: str, job_id: str = "j") -> RunTracker:
    """A training of a machine with a disk of its own, which has sent two points."""
    tracker = RunTracker(folder / "state", stage="pretrain", name=name, job_id=job_id)
    tracker.set_tags({COPY: copy})
    log(tracker, range(1, 3))
    sync_tracking(folder, uri)
    time.sleep(0.01)
    return tracker


def test_who_goes_on_elsewhere_ends_the_run_of_the_lost_machine(
    client: MlflowClient, uri: str, tmp_path: Path
) -> None:
    name = "lost"
    on_a_machine(tmp_path / "lost", uri, name, "a")
    on_a_machine(tmp_path / "of another copy", uri, name, "b")
    on_a_machine(tmp_path / "another training", uri, name, "a", job_id="k")
    after = on_a_machine(tmp_path / "after", uri, name, "a")
    alive = on_a_machine(tmp_path / "alive", uri, name, "a")  # its points are newer
    after.close("FINISHED")
    sync_tracking(tmp_path / "after", uri)
    result = runs(client, name)
    statuses = sorted(run.info.status for run in result)
    assert statuses == ["FINISHED", "KILLED", "RUNNING", "RUNNING", "RUNNING"]
    (lost,) = (run for run in result if run.info.status == "KILLED")
    (goes_on,) = (run for run in result if run.info.status == "FINISHED")
    assert lost.data.tags["continued_by"] == goes_on.info.run_id
    assert (lost.data.tags["resumable"], lost.data.tags[COPY]) == ("false", "a")
    assert lost.info.end_time <= goes_on.info.start_time
    alive.close("FINISHED")


def test_one_that_lived_all_the_same_puts_itself_right(
    client: MlflowClient, uri: str, tmp_path: Path
) -> None:
    silent = on_a_machine(tmp_path / "silent", uri, "silent", "a")
    on_a_machine(tmp_path / "after", uri, "silent", "a").close("FINISHED")
    sync_tracking(tmp_path / "after", uri)
    assert {run.info.status for run in runs(client, "silent")} == {"KILLED", "FINISHED"}
    silent.close("FINISHED")
    sync_tracking(tmp_path / "silent", uri)
    result = runs(client, "silent")
    assert {run.info.status for run in result} == {"FINISHED"}
    assert not any("continued_by" in run.data.tags for run in result)
