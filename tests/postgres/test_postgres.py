"""A team's tracking: four writers, MLflow on PostgreSQL, artifacts on S3, and what fails in it.

`make test-postgres` runs this; the ordinary suite leaves it out.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from attempts import FORK, Calls, wait_until
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from outages import free_port
from own_postgres import Postgres
from s3_server import BUCKET, Server
from small_workflow import CANARY, Checkout
from sqlalchemy.exc import SQLAlchemyError
from tracked import Training, only_run, runs

from difftransformer.provenance.command_errors import report_errors
from difftransformer.tracking.history import HISTORY_FILE, Sent
from difftransformer.tracking.sync import sync_tracking

pytestmark = pytest.mark.postgres
WRITERS = 4


def arrived(uri: str, name: str) -> int:
    """How many losses of a job the store has; 0 while it has no tables yet."""
    try:
        client = MlflowClient(uri)
        tracked_runs = runs(client, name)
        return (
            len(client.get_metric_history(tracked_runs[0].info.run_id, "loss"))
            if tracked_runs
            else 0
        )
    except (AssertionError, MlflowException, SQLAlchemyError):
        return 0


def size_of_history(training: Training) -> int:
    return (training.state / HISTORY_FILE).stat().st_size


def train_through_outages(trainings: dict[str, Training], uri: str, postgres: Postgres) -> None:
    """All at once: the database crashes, comes back in mid-run, then hangs past their ends."""
    down, back = FORK.Event(), FORK.Event()
    for training in trainings.values():
        training.gates = {40: down, 100: back}
    processes = {name: training.start(name) for name, training in trainings.items()}
    for name, process in processes.items():
        assert wait_until(lambda name=name: arrived(uri, name) > 0, process, 0.2)

    postgres.stop()
    down.set()
    for name, process in processes.items():  # as far as the gate lets them
        assert wait_until(lambda name=name: trainings[name].step() >= 100, process)
        assert Sent.load(trainings[name].state, uri).offset < size_of_history(trainings[name])
    postgres.start()
    for name, process in processes.items():
        written = len([point for point in trainings[name].points() if point[0] == "loss"])
        assert wait_until(lambda name=name, n=written: arrived(uri, name) >= n, process, 0.2)

    postgres.freeze()
    started = time.monotonic()
    back.set()
    for process in processes.values():
        process.join(60)
    took = time.monotonic() - started
    postgres.thaw()
    assert [process.exitcode for process in processes.values()] == [0] * WRITERS, took


def artifact_in_bucket(s3: Server, server: str, name: str) -> bytes:
    """The artifact of a job, as it lies in the bucket."""
    folder = only_run(MlflowClient(server), name).info.artifact_uri.partition(":/")[2]
    return s3.read(BUCKET, f"difftransformer/{folder}/history.csv")


@pytest.fixture
def trainings(
    finished: Checkout, reference_calls: Calls, tmp_path: Path
) -> Callable[[str], dict[str, Training]]:
    def make(uri: str) -> dict[str, Training]:
        names = [f"{uri.partition(':')[0]}/{number}" for number in range(WRITERS)]
        return {
            n: Training(finished, reference_calls, tmp_path / n.replace("/", "_"), uri)
            for n in names
        }

    return make


def assert_all_arrived(trainings: dict[str, Training], uri: str) -> None:
    client = MlflowClient(uri)
    for name, training in trainings.items():
        training.assert_trained()
        assert sync_tracking(training.root, uri).unsent == ()
        run = only_run(client, name)
        assert run.info.status == "FINISHED"
        training.assert_all_arrived(client, run)
        assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["history.csv"]


def test_four_writers_on_a_server_whose_database_crashes_and_hangs(
    trainings: Callable[[str], dict[str, Training]], server: str, postgres: Postgres, s3: Server
) -> None:
    made = trainings(server)
    train_through_outages(made, server, postgres)
    assert_all_arrived(made, server)
    for name, training in made.items():
        assert (
            artifact_in_bucket(s3, server, name) == (training.output / "history.csv").read_bytes()
        )


def test_an_artifact_that_the_bucket_refuses_is_sent_later(
    finished: Checkout, reference_calls: Calls, tmp_path: Path, server: str, s3: Server
) -> None:
    name, training = "refused", Training(finished, reference_calls, tmp_path, server)
    training.live_after = 900.0
    training.run(name)
    store = s3.client()
    for key in s3.keys(BUCKET):
        store.delete_object(Bucket=BUCKET, Key=key)
    store.delete_bucket(Bucket=BUCKET)
    report = sync_tracking(training.root, server)
    store.create_bucket(Bucket=BUCKET)
    assert report.unsent == (training.state,) and report.reason
    assert only_run(MlflowClient(server), name).info.status == "RUNNING"  # what follows it waits
    assert_all_arrived({name: training}, server)
    assert artifact_in_bucket(s3, server, name) == (training.output / "history.csv").read_bytes()


def test_four_writers_on_a_database_that_has_no_tables_yet(
    trainings: Callable[[str], dict[str, Training]], postgres: Postgres
) -> None:
    uri = postgres.create("direct")
    made = trainings(uri)
    train_through_outages(made, uri, postgres)
    assert_all_arrived(made, uri)


MISTAKES = {
    "a wrong password": ("mlflow", {"PGPASSWORD": f"{CANARY}-wrong"}, "password are refused"),
    "no password": ("mlflow", {"PGPASSWORD": ""}, "password are refused"),
    "no such database": ("nosuch", {}, "the database does not exist; create it (createdb)"),
}


def sync_stderr(uri: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """All that `sync-tracking` says where there is nothing to send."""
    capfd.readouterr()
    started = time.monotonic()
    with report_errors(folder / "log"):
        assert sync_tracking(folder, uri).reason
    assert time.monotonic() - started < 15
    stderr = capfd.readouterr().err.strip()
    assert CANARY not in stderr + (folder / "log").read_text()
    return stderr


@pytest.mark.parametrize("case", MISTAKES)
def test_database_errors_are_one_line(
    case: str,
    postgres: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    database, variables, expected = MISTAKES[case]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stderr = sync_stderr(postgres.address(database), tmp_path, capfd)
    assert re.fullmatch(r"warning: tracking: postgresql://\*\*\*@127[^\n]*", stderr), stderr
    assert expected in stderr


def test_a_refused_server_password_is_one_line(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", f"{CANARY}-wrong")
    stderr = sync_stderr(server, tmp_path, capfd)
    assert re.fullmatch(r"warning: tracking: http://127[^\n]*password are refused[^\n]*", stderr)


def test_a_database_that_is_down_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    address = f"postgresql://team:{CANARY}-in-address@127.0.0.1:{free_port()}/mlflow"
    stderr = sync_stderr(address, tmp_path, capfd)
    assert re.fullmatch(
        r"warning: tracking: [^\n]* \(nothing listens at this address\)[^\n]*", stderr
    ), stderr


def test_the_command_reports_the_error_and_keeps_unsent_records(
    trainings: Callable[[str], dict[str, Training]],
    postgres: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri = postgres.create("later")
    name, training = next(iter(trainings(uri).items()))
    training.live_after = 900.0
    training.run(name)
    words = [sys.executable, "-m", "difftransformer", "sync-tracking"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with monkeypatch.context() as patch:
        patch.setenv("PGPASSWORD", f"{CANARY}-wrong")
        ended = subprocess.run(
            [*words, "--results", str(training.root)],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert ended.returncode == 1
    assert "1 of 1 runs are not sent (user name or password are refused" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 2, ended.stderr
    assert CANARY not in ended.stderr
    assert_all_arrived({name: training}, uri)
