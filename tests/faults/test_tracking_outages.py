"""Whatever a tracking store does: training goes on, and each point arrives exactly once."""

import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attempts import FORK, Calls, wait_until
from mlflow import MlflowClient
from outages import Mode, Proxy, mlflow_server
from small_workflow import Checkout
from tracked import Training, kill_when_sent, only_run, runs

from difftransformer.tracking.history import HISTORY_FILE
from difftransformer.tracking.run_context import start_run
from difftransformer.tracking.sync import sync_tracking


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with mlflow_server(tmp_path_factory.mktemp("server")) as port:
        yield port


@pytest.fixture
def proxy(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    made = Proxy(server)
    yield made
    made.close()


OUTAGES: dict[str, list[tuple[int, Mode]]] = {
    "down at its start and back later": [(0, "down"), (60, "up")],
    "dies and stays away": [(0, "up"), (60, "down")],
    "dies and comes back": [(0, "up"), (50, "down"), (120, "up")],
    "answers 500": [(0, "500")],
    "loses its answers": [(0, "lost"), (120, "up")],
    "answers after 5 s": [(0, "slow")],
}


@pytest.mark.parametrize(
    "outage",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] * (not name.startswith("down")))
        for name in OUTAGES
    ],
)
def test_a_server_that_fails(
    finished: Checkout,
    job_calls: Calls,
    tmp_path: Path,
    server: int,
    proxy: Proxy,
    outage: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    phases, name = OUTAGES[outage], f"faults/{outage}"
    training = Training(finished, job_calls, tmp_path, proxy.uri)
    proxy.mode = phases[0][1]
    started = time.monotonic()
    process = training.start(name)
    for step, mode in phases[1:]:
        assert wait_until(lambda step=step: training.step() >= step, process)
        proxy.mode = mode
    process.join(120)
    assert process.exitcode == 0
    assert time.monotonic() - started < 60, "a call each for twenty records takes 100 s"
    training.assert_trained()
    assert proxy.calls > 0
    if proxy.mode == "down":
        assert sync_tracking(training.root, proxy.uri).unsent == (training.state,)
    if proxy.mode != "slow":
        proxy.mode = "up"
    assert sync_tracking(training.root, proxy.uri).unsent == ()
    client = MlflowClient(tracking_uri=f"http://127.0.0.1:{server}")
    run = only_run(client, name)
    assert run.info.status == "FINISHED"
    training.assert_all_arrived(client, run)
    assert "View run" not in capfd.readouterr().out  # with the password of an address


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A SQLite store with its tables."""
    root = tmp_path_factory.mktemp("database")
    return make_database(f"sqlite:///{root}/mlflow.db", root)


def make_database(uri: str, root: Path) -> str:
    from difftransformer.tracking.mlflow_runs import MlflowRuns

    MlflowRuns(uri, root).experiment("pretrain")
    return uri


@pytest.mark.exhaustive
def test_a_sqlite_file_locked_by_another_process_for_30_s(
    finished: Checkout, job_calls: Calls, tmp_path: Path, database: str
) -> None:
    training = Training(finished, job_calls, tmp_path, database)
    other = sqlite3.connect(database.removeprefix("sqlite:///"), check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(30, other.rollback)
    release.start()
    process = training.start("locked")
    process.join(120)
    assert process.exitcode == 0
    assert release.is_alive(), "the training waited for the database"
    training.assert_trained()
    release.join()
    other.close()
    assert sync_tracking(training.root, database).unsent == ()
    client = MlflowClient(tracking_uri=database)
    training.assert_all_arrived(client, only_run(client, "locked"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("there", [False, True], ids=["cannot be made", "cannot grow"])
def test_a_database_without_room_while_a_training_sends(
    finished: Checkout, job_calls: Calls, tmp_path: Path, there: bool
) -> None:
    path = tmp_path / "mlflow" / "mlflow.db"
    uri = f"sqlite:///{path}"
    training = Training(finished, job_calls, tmp_path, uri)
    training.largest_file = 700_000  # more than a checkpoint, less than a database
    if there:
        make_database(uri, tmp_path)
        training.largest_file = path.stat().st_size + 4096
    process = training.start("full")
    process.join(120)
    assert process.exitcode == 0
    training.assert_trained()
    assert path.exists() == there
    assert sync_tracking(training.root, uri).unsent == ()
    assert path.stat().st_size > training.largest_file, "there was room enough"
    client = MlflowClient(tracking_uri=uri)
    training.assert_all_arrived(client, only_run(client, "full"))


@pytest.mark.exhaustive
def test_eight_jobs_at_once_on_a_fresh_sqlite_file(
    finished: Checkout, job_calls: Calls, tmp_path: Path
) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow/mlflow.db"
    trainings = [Training(finished, job_calls, tmp_path / str(n), uri) for n in range(8)]
    for training in trainings:  # one results folder, each job with a state of its own
        training.root, training.close_wait = tmp_path, 120.0
    processes = [t.start(f"eight/{n}") for n, t in enumerate(trainings)]
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0] * 8
    client = MlflowClient(tracking_uri=uri)
    sent = [n for n in range(8) if runs(client, f"eight/{n}")]
    assert len(sent) > 1, "no two wrote into one file"
    assert sync_tracking(tmp_path, uri).unsent == ()
    for n, training in enumerate(trainings):
        training.assert_trained()
        training.assert_all_arrived(client, only_run(client, f"eight/{n}"))


@pytest.mark.exhaustive
def test_a_database_that_was_deleted_gets_everything_again(tmp_path: Path) -> None:
    root = tmp_path / "results"
    path = root / "mlflow" / "mlflow.db"
    uri = f"sqlite:///{path}"
    for name in ("a/0", "b/0"):
        with start_run("pretrain", name, name, root / name, {}, {}, uri) as tracker:
            for step in range(10):
                tracker.log_metrics({"loss": 1 / (step + 1)}, step)
    command = [sys.executable, "-c", "from difftransformer.cli import main; main()"]
    command += ["sync-tracking", "--results", str(root), "--tracking", uri]  # mlflow knows files
    for _ in range(2):
        subprocess.run(command, check=True)
        with closing(sqlite3.connect(path)) as database:
            points = database.execute("SELECT step FROM metrics WHERE key = 'loss'").fetchall()
            runs = database.execute("SELECT name, status FROM runs ORDER BY name").fetchall()
        assert sorted(step for (step,) in points) == sorted(2 * list(range(10)))
        assert runs == [("a/0", "FINISHED"), ("b/0", "FINISHED")]
        assert not sync_tracking(root, uri).unsent
        path.unlink()


def test_points_missing_from_the_history_are_logged_again(
    finished: Checkout, job_calls: Calls, tmp_path: Path, database: str
) -> None:
    training, client = Training(finished, job_calls, tmp_path, database), MlflowClient(database)
    training.live_after = 900.0  # what was not written was not sent either
    training.gates = {100: FORK.Event()}
    process = training.start("gaps")
    assert wait_until(lambda: training.step() >= 80, process)
    process.kill()
    process.join()
    training.gates = {}
    history = training.state / HISTORY_FILE
    lines = history.read_text().splitlines(keepends=True)
    history.write_text("".join(lines[: len(lines) // 2]))
    training.run("gaps")
    sync_tracking(training.root, database)
    training.assert_all_arrived(client, only_run(client, "gaps"))


def test_only_own_dead_runs_are_ended(
    finished: Checkout, job_calls: Calls, tmp_path: Path, database: str
) -> None:
    client = MlflowClient(database)
    experiment = client.get_experiment_by_name("difftransformer/pretrain")
    assert experiment is not None
    foreign = client.create_run(experiment.experiment_id, run_name="foreign")
    neighbor = Training(finished, job_calls, tmp_path / "neighbor", database)
    kill_when_sent(neighbor, client, "neighbor")
    forgotten, living = (
        Training(finished, job_calls, tmp_path / name, database) for name in ("forgotten", "living")
    )
    living.root = forgotten.root  # one results folder
    kill_when_sent(forgotten, client, "forgotten")
    shutil.rmtree(forgotten.state)  # with its history
    living.state = living.root / "living"
    living.gates = {100: FORK.Event()}
    process = living.start("living")
    assert wait_until(lambda: bool(runs(client, "living")), process)
    with start_run("pretrain", "other", "other", forgotten.root / "other", {}, {}, database):
        pass
    assert sync_tracking(forgotten.root, database).unsent == ()
    assert process.is_alive() and only_run(client, "living").info.status == "RUNNING"
    living.gates[100].set()
    ended = only_run(client, "forgotten")
    assert (ended.info.status, ended.data.tags["resumable"]) == ("KILLED", "true")
    assert only_run(client, "neighbor").info.status == "RUNNING"
    assert client.get_run(foreign.info.run_id).info.status == "RUNNING"
    process.join(120)
    sync_tracking(forgotten.root, database)
    assert only_run(client, "living").info.status == "FINISHED"
    assert sync_tracking(neighbor.root, database).unsent == ()
    assert only_run(client, "neighbor").info.status == "KILLED"
