"""Results folders that were moved or copied, with their own store or one that they share."""

import shutil
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType
from mlflow.tracking._tracking_service import utils
from stored_runs import curve, log, runs, train

from difftransformer.provenance.atomic import write_text
from difftransformer.tracking import store as store_module
from difftransformer.tracking.mlflow_runs import MlflowRuns
from difftransformer.tracking.run_context import start_run
from difftransformer.tracking.store import open_store
from difftransformer.tracking.sync import sync_tracking
from difftransformer.tracking.tracker import RunTracker


@pytest.fixture
def project(uri: str, tmp_path: Path) -> Path:
    """Results folder of a project with a SQLite file of its own."""
    root = tmp_path / "project" / "results"
    shutil.copytree(Path(uri.removeprefix("sqlite:///")).parent, root / "mlflow")
    send(root, "first")
    return root


def store(root: Path) -> str:
    return f"sqlite:///{root}/mlflow/mlflow.db"


def send(root: Path, job_id: str, address: str = "") -> None:
    """Do a job with an artifact, and send it; jobs of one name supersede each other."""
    address = address or store(root)
    with start_run("pretrain", "job", job_id, root / "state" / job_id, {}, {}, address) as tracker:
        write_text(root / "curve.csv", job_id)
        tracker.log_artifact(root / "curve.csv")
    time.sleep(0.01)
    utils._artifact_repos_cache.clear()  # a process that begins after the move has none
    assert not sync_tracking(root, address).unsent


def ids(client: MlflowClient, view: int = ViewType.ACTIVE_ONLY) -> set[str]:
    return {run.data.tags["job_id"] for run in runs(client, "job", view)}


@pytest.mark.parametrize("move", ["rename", "copy"])
def test_artifacts_follow_a_folder_with_its_store(project: Path, tmp_path: Path, move: str) -> None:
    there = tmp_path / "project2" / "results"
    if move == "rename":
        (tmp_path / "project").rename(tmp_path / "project2")
    else:
        shutil.copytree(tmp_path / "project", tmp_path / "project2")
    before = sorted((tmp_path / "project").rglob("*"))
    send(there, "second")
    assert sorted((tmp_path / "project").rglob("*")) == before
    client = MlflowClient(tracking_uri=store(there))
    for run in runs(client, "job", ViewType.ALL):
        folder = Path(run.info.artifact_uri.removeprefix("file://"))
        assert folder.is_relative_to(there)
        assert (folder / "curve.csv").read_text() == run.data.tags["job_id"]
    # The runs are still those of the folder: what is done anew supersedes them.
    assert (ids(client), ids(client, ViewType.DELETED_ONLY)) == ({"second"}, {"first"})
    if move == "copy":
        theirs = MlflowClient(tracking_uri=store(project))
        assert ids(theirs) == {"first"}
        send(project, "third")
        assert ids(theirs) == {"third"}


def test_a_moved_folder_keeps_its_runs_in_a_store_elsewhere(
    client: MlflowClient, uri: str, tmp_path: Path
) -> None:
    original, moved = tmp_path / "one", tmp_path / "other"
    name = "moved"
    train(name, original / "a", uri, range(1, 3), job_id="a")
    sync_tracking(original, uri)
    time.sleep(0.01)
    original.rename(moved)
    train(name, moved / "b", uri, range(1, 3), job_id="b")
    sync_tracking(moved, uri)
    assert [run.data.tags["job_id"] for run in runs(client, name)] == ["b"]


def test_a_copy_leaves_the_runs_of_the_first_folder_alone(
    client: MlflowClient, uri: str, tmp_path: Path
) -> None:
    first, copy, name = tmp_path / "first", tmp_path / "copy", "copied"
    train(name, first / "a", uri, range(1, 3), job_id="a")
    alive = RunTracker(first / "alive", stage="pretrain", name=f"{name}/alive", job_id="l")
    log(alive, range(1, 3))
    sync_tracking(first, uri)
    time.sleep(0.01)
    shutil.copytree(first, copy)
    assert MlflowRuns(uri, copy).find("a") == MlflowRuns(uri, first).find("a") is not None
    train(name, copy / "b", uri, range(1, 3), job_id="b")  # other settings
    train(f"{name}/alive", copy / "alive", uri, range(3, 5), job_id="l")  # it goes on from there
    sync_tracking(copy, uri)
    assert {run.data.tags["job_id"] for run in runs(client, name)} == {"a", "b"}
    going_on, theirs = sorted(runs(client, f"{name}/alive"), key=lambda run: run.info.status)
    assert (going_on.info.status, theirs.info.status) == ("FINISHED", "RUNNING")
    assert [step for step, _ in curve(client, theirs)] == [1, 2]
    assert [step for step, _ in curve(client, going_on)] == [1, 2, 3, 4]
    alive.close("FINISHED")


def test_the_history_of_a_living_job_that_was_copied_ends_no_run(
    client: MlflowClient, uri: str, tmp_path: Path
) -> None:
    alive = RunTracker(tmp_path / "first" / "a", stage="pretrain", name="lives", job_id="a")
    log(alive, range(1, 3))
    sync_tracking(tmp_path / "first", uri)
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    sync_tracking(tmp_path / "copy", uri)  # nobody holds its lock there
    (run,) = runs(client, "lives")
    assert run.info.status == "RUNNING"
    alive.close("FINISHED")


@pytest.mark.parametrize("noted", ["", "id of-no-file", "id 0"])
def test_a_marker_that_is_damaged_is_made_again(uri: str, tmp_path: Path, noted: str) -> None:
    write_text(tmp_path / "mlflow" / "workspace", noted)
    _, workspace = open_store(uri, tmp_path)
    assert workspace not in {"", "id"} and open_store(uri, tmp_path)[1] == workspace


def test_a_database_that_another_host_is_making_stays(uri: str, tmp_path: Path) -> None:
    """Two results folders with one file have two locks."""
    theirs = tmp_path / f".mlflow.another-node.{2**22 + 1}.partial.db"
    theirs.write_bytes(b"half")
    path, template = tmp_path / "mlflow.db", Path(uri.removeprefix("sqlite:///"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            store_module,
            "MlflowClient",
            lambda tracking_uri: (
                shutil.copy(template, tracking_uri.removeprefix("sqlite:///"))
                and MlflowClient(tracking_uri=tracking_uri)
            ),
        )
        store_module._make_database(f"sqlite:///{path}", path)
    assert path.exists() and theirs.read_bytes() == b"half"
