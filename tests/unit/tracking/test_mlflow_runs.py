"""Histories against a real MLflow store on SQLite."""

import logging
import os
import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from stored_runs import curve, log, runs, train

from difftransformer.tracking.history import HISTORY_FILE, SENT, Sent
from difftransformer.tracking.mlflow_runs import MlflowRuns
from difftransformer.tracking.run_context import start_run
from difftransformer.tracking.sync import SyncConfig, sync_tracking
from difftransformer.tracking.tracker import RunTracker

pytestmark = pytest.mark.usefixtures("workspace")
AT_ONCE = SyncConfig(live_after=0.0, live_every=0.05)
CLOSED_PORT = "http://127.0.0.1:9"


def test_everything_of_a_job_arrives(
    client: MlflowClient,
    uri: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "user")
    caplog.set_level(logging.INFO)
    state = tmp_path / "results" / "state"
    table = tmp_path / "results" / "history.csv"
    table.parent.mkdir()
    table.write_text("step,loss\n")
    params = {"model": {"d_model": 64, **{f"p{index}": index for index in range(130)}}}
    with start_run("pretrain", "all/0", "id-0", state, params, {"seed": 0}, uri) as tracker:
        for step in range(1, 1501):  # more than one call takes
            tracker.log_metrics({"loss": 1 / step, "undefined": float("nan")}, step)
        tracker.log_artifact(table)
        tracker.log_artifact(tmp_path / "results" / "gone.csv")
    assert "gone.csv cannot be copied (No such file or directory)" in caplog.text
    table.unlink()  # as where the workflow has moved it into object storage
    report = sync_tracking(tmp_path / "results", uri)
    assert report.unsent == () and "sending 1 runs" in caplog.text
    (run,) = runs(client, "all/0")
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "all/0"
    assert run.data.tags["mlflow.user"] == run.info.user_id == "user"
    assert run.data.params["model.d_model"] == "64"
    assert len(run.data.params) == 131
    assert run.data.tags["seed"] == "0"
    assert run.data.tags["job_id"] == "id-0"
    assert curve(client, run) == sorted((step, 1 / step) for step in range(1, 1501))
    assert len(client.get_metric_history(run.info.run_id, "undefined")) == 1500
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["history.csv"]
    caplog.clear()
    sync_tracking(tmp_path / "results", uri)
    assert not caplog.records  # nothing to do twice


@pytest.mark.parametrize("lost", ["position", "file"])
def test_sending_again_after_a_crash_doubles_nothing(
    client: MlflowClient, uri: str, tmp_path: Path, lost: str
) -> None:
    name, state = f"crash/{lost}", tmp_path / "results" / "state"
    train(name, state, uri, range(1, 21))
    sync_tracking(tmp_path / "results", uri)
    if lost == "position":
        Sent(Sent.load(state, uri).run_id, 0).save(state, uri)
    else:
        for sent in state.glob(SENT):
            sent.unlink()  # as between create_run and the note of its id
    sync_tracking(tmp_path / "results", uri)
    (run,) = runs(client, name)
    assert curve(client, run) == sorted((step, 1 / step) for step in range(1, 21))
    assert len(curve(client, run, "lr")) == 20


def test_lost_responses_duplicate_no_points(
    client: MlflowClient, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, lost = tmp_path / "results" / "state", set[str]()
    train("fails", state, uri, range(1, 1001))
    log_batch = SqlAlchemyStore.log_batch

    def losing(store: SqlAlchemyStore, run_id: str, **parts: Any) -> None:
        log_batch(store, run_id, **parts)
        call = str([[vars(entity) for entity in part] for part in parts.values()])
        if call not in lost:
            lost.add(call)
            raise MlflowException("it is down")

    monkeypatch.setattr(SqlAlchemyStore, "log_batch", losing)
    attempts = 1
    while sync_tracking(tmp_path / "results", uri).unsent:
        attempts += 1
        assert attempts < 20
    assert attempts > 3  # more than one call takes
    (run,) = runs(client, "fails")
    assert run.info.status == "FINISHED"
    assert curve(client, run) == sorted((step, 1 / step) for step in range(1, 1001))
    assert len(curve(client, run, "lr")) == 1000


def test_run_deleted_from_the_store_is_sent_again_in_full(
    client: MlflowClient, uri: str, tmp_path: Path
) -> None:
    root, name = tmp_path / "results", "lost/0"
    train(name, root / "state", uri, range(1, 11))
    sync_tracking(root, uri)
    sent = Sent.load(root / "state", uri)
    gone = "0" * 32  # as after `mlflow gc`, which takes the tags too
    client.set_tag(str(sent.run_id), "difftransformer.spool", "of another history")
    Sent(gone, sent.offset).save(root / "state", uri)
    train(name, root / "state", uri, range(11, 21))
    assert sync_tracking(root, uri).unsent == ()
    full_curve = [(step, 1 / step) for step in range(1, 21)]
    assert full_curve in [curve(client, run) for run in runs(client, name)]


def test_a_resumed_job_continues_its_run(client: MlflowClient, uri: str, tmp_path: Path) -> None:
    state = tmp_path / "results" / "state"
    job = start_run("pretrain", "resumed", "j", state, {"lr": 0.1}, {}, uri)
    with pytest.raises(SystemExit), job as tracker:
        log(tracker, range(1, 11))
        raise SystemExit(75)
    sync_tracking(tmp_path / "results", uri)
    (run,) = runs(client, "resumed")
    assert (run.info.status, run.data.tags["resumable"]) == ("KILLED", "true")
    train("resumed", state, uri, range(8, 16))  # the checkpoint was that of step 7
    sync_tracking(tmp_path / "results", uri)
    (again,) = runs(client, "resumed")
    assert again.info.run_id == run.info.run_id
    assert again.info.status == "FINISHED"
    assert (again.data.tags["resumable"], again.data.tags["interruptions"]) == ("false", "1")
    assert curve(client, again) == sorted((step, 1 / step) for step in range(1, 16))


def test_a_killed_job_does_not_stay_running(
    client: MlflowClient, uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    state = tmp_path / "results" / "state"
    tracker = RunTracker(state, stage="pretrain", name="dead", job_id="j")
    log(tracker, range(1, 3))
    sync_tracking(tmp_path / "results", uri)
    (run,) = runs(client, "dead")
    assert run.info.status == "RUNNING"  # it lives: its history is locked
    os.close(tracker._descriptor)  # as the kernel does for SIGKILL
    with (state / "tracking.jsonl").open("a") as history:
        history.write('{"kind":"metr')  # in the middle of a line
    sync_tracking(tmp_path / "results", uri)
    (run,) = runs(client, "dead")
    assert (run.info.status, run.data.tags["resumable"]) == ("KILLED", "true")
    caplog.clear()
    sync_tracking(tmp_path / "results", uri)
    assert not caplog.records  # it is told once
    train("dead", state, uri, range(3, 5))
    sync_tracking(tmp_path / "results", uri)
    (run,) = runs(client, "dead")
    assert run.info.status == "FINISHED"


def test_a_job_that_has_just_finished_was_not_killed(
    client: MlflowClient, uri: str, tmp_path: Path
) -> None:
    root = tmp_path / "results"
    tracker = RunTracker(root / "state", stage="pretrain", name="ends", job_id="j")
    log(tracker, range(1, 3))
    sync_tracking(root, uri)
    tracker.close("FINISHED")  # after others were sent, and before killed runs are looked for
    MlflowRuns(uri, root).tidy()
    assert [run.info.status for run in runs(client, "ends")] == ["RUNNING"]
    sync_tracking(root, uri)
    assert [run.info.status for run in runs(client, "ends")] == ["FINISHED"]


def test_a_run_lasts_as_long_as_its_job_did(client: MlflowClient, uri: str, tmp_path: Path) -> None:
    root = tmp_path / "results"
    started = time.time()
    train("again", root / "again", uri, range(1, 4))
    tracker = RunTracker(root / "dead", stage="pretrain", name="died", job_id="k")
    log(tracker, range(1, 3))
    os.close(tracker._descriptor)  # as the kernel does for SIGKILL
    took = time.time() - started
    time.sleep(took + 0.5)
    sync_tracking(root, uri)  # only now somebody sees that it is dead
    train("again", root / "again", uri, range(1, 4))  # the same job, for its output was gone
    sync_tracking(root, uri)
    for name, status in (("again", "FINISHED"), ("died", "KILLED")):
        (run,) = runs(client, name)
        assert run.info.status == status
        assert run.info.end_time - run.info.start_time <= 1000 * took + 1


def test_a_rerun_supersedes_and_a_return_restores(
    client: MlflowClient, uri: str, tmp_path: Path
) -> None:
    name, root = "rerun", tmp_path / "results"
    for job_id in ("old", "new"):
        train(name, root / job_id, uri, range(1, 4), job_id=job_id)
        time.sleep(0.01)
    sync_tracking(root, uri)
    (run,) = runs(client, name)
    assert run.data.tags["job_id"] == "new"
    (old,) = runs(client, name, ViewType.DELETED_ONLY)
    assert old.data.tags["superseded_by"] == "new"
    train(name, root / "old", uri, range(1, 4), job_id="old")  # the edit was taken back
    sync_tracking(root, uri)
    (run,) = runs(client, name)
    assert run.data.tags["job_id"] == "old"
    assert "superseded_by" not in run.data.tags
    (new,) = runs(client, name, ViewType.DELETED_ONLY)
    assert new.data.tags["job_id"] == "new"


def test_an_old_history_sent_late_does_not_supersede(
    client: MlflowClient, uri: str, tmp_path: Path
) -> None:
    train("late", tmp_path / "hidden" / "old", uri, range(1, 4), job_id="old")
    time.sleep(0.01)
    train("late", tmp_path / "results" / "new", uri, range(1, 4), job_id="new")
    sync_tracking(tmp_path / "results", uri)
    (tmp_path / "hidden" / "old").rename(tmp_path / "results" / "old")
    sync_tracking(tmp_path / "results", uri)
    (run,) = runs(client, "late")
    assert run.data.tags["job_id"] == "new"


def test_another_results_folder_is_left_alone(
    client: MlflowClient, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("mine", "yours"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        train("shared", Path("results/state"), uri, range(1, 3), job_id=folder)
        sync_tracking(Path("results"), uri)
    assert {run.data.tags["job_id"] for run in runs(client, "shared")} == {"mine", "yours"}


def test_a_long_job_sends_while_it_runs(client: MlflowClient, uri: str, tmp_path: Path) -> None:
    with start_run("pretrain", "live", "j", tmp_path / "state", {}, {}, uri, AT_ONCE) as tracker:
        log(tracker, range(1, 6))
        deadline = time.monotonic() + 30
        while not (result := runs(client, "live")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert result[0].info.status == "RUNNING"
        log(tracker, range(6, 11))
    (run,) = runs(client, "live")
    assert run.info.status == "FINISHED"
    assert len(curve(client, run)) == 10
    later = replace(AT_ONCE, close_wait=60.0)
    with start_run("pretrain", "live", "k", tmp_path / "k", {}, {}, uri, later) as tracker:
        log(tracker, range(1, 3))
    assert [run.data.tags["job_id"] for run in runs(client, "live")] == ["k"]  # superseded at once


def test_job_on_an_ephemeral_disk_syncs_before_it_ends(
    client: MlflowClient, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIFFTRANSFORMER_DISK", "passing")
    root = tmp_path / "results"
    here = SyncConfig(root=root)
    with start_run("pretrain", "in a pod", "j", root / "state", {}, {}, uri, here) as tracker:
        log(tracker, range(1, 4))
    (run,) = runs(client, "in a pod")
    assert run.info.status == "FINISHED" and len(curve(client, run)) == 3


def test_a_store_that_is_down_stops_nothing_and_gets_all_later(
    client: MlflowClient, uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "results" / "state"
    config = SyncConfig(live_after=0.0, live_every=0.05, close_wait=0.3)
    started = time.monotonic()
    with start_run("pretrain", "down", "j", state, {}, {}, CLOSED_PORT, config) as tracker:
        log(tracker, range(1, 11))
        assert time.monotonic() - started < 1
        time.sleep(0.2)
        closing = time.monotonic()
    assert time.monotonic() - closing < 2
    assert "difftransformer sync-tracking" in caplog.text
    report = sync_tracking(tmp_path / "results", CLOSED_PORT)
    assert report.unsent == (state,)
    assert report.reason
    assert sync_tracking(tmp_path / "results", uri).unsent == ()
    (run,) = runs(client, "down")
    assert curve(client, run) == sorted((step, 1 / step) for step in range(1, 11))


def test_a_locked_database_is_tried_again(
    client: MlflowClient, uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    database = sqlite3.connect(uri.removeprefix("sqlite:///"), check_same_thread=False)
    database.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(2.0, database.rollback)
    release.start()
    train("locked", tmp_path / "results" / "state", uri, range(1, 4))
    sync_tracking(tmp_path / "results", uri)
    release.join()
    database.close()
    sync_tracking(tmp_path / "results", uri)
    (run,) = runs(client, "locked")
    assert len(curve(client, run)) == 3


def test_a_history_that_does_not_say_whose_it_is_stays_unsent_and_is_named(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torn, damaged = tmp_path / "torn" / HISTORY_FILE, tmp_path / "damaged" / HISTORY_FILE
    for path, text in ((torn, '{"kind": "jo'), (damaged, "garbage\n")):
        path.parent.mkdir()
        path.write_text(text)
    MlflowRuns(uri).send(torn.parent)
    assert not Sent.load(torn.parent, uri).run_id
    assert sync_tracking(tmp_path, uri).unsent == (damaged.parent,)
    assert f"{damaged}: its first line is damaged" in caplog.text
    assert f"sync-tracking --results {tmp_path}" in caplog.text
