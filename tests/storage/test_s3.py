"""Tables from nothing but a bucket, on a real S3 server on loopback; what buckets refuse.

`make test-s3` runs this; the ordinary suite leaves it out.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import pytest
from attempts import Rebuild, assert_same, calls
from s3_server import Server, refusing, serving
from small_cluster import wait_for
from small_workflow import Checkout, copy_of

pytestmark = pytest.mark.s3

TRAINING = "results/smoke/runs/diff/0/training.json"
LAST = "checkpoint-00000200"
ERROR = ("error: ", "warning: ")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def bucket(server: Server, request: pytest.FixtureRequest) -> str:
    name = f"b{abs(hash(request.node.name)) % 10**12}"
    server.client().create_bucket(Bucket=name)
    return name


class Elsewhere:
    """A machine that has the sources alone: all else lies in a bucket."""

    def __init__(self, finished: Checkout, folder: Path, server: Server, bucket: str) -> None:
        folder.mkdir()
        self.folder = copy_of(finished.folder, folder).folder
        self.bucket, self.server = bucket, server
        self.environment = server.environment | {
            "DIFFTRANSFORMER_STATE": f"s3://{bucket}/state",
            "PYTHONPATH": str(self.folder / "src"),
            "OMP_NUM_THREADS": "1",
        }

    def words(self, *words: str) -> list[str]:
        prefix = f"s3://{self.bucket}/built"
        storage = ("--default-storage-provider", "s3", "--default-storage-prefix", prefix)
        return [sys.executable, "-m", "snakemake", *words, "--cores", "2", *storage]

    def snakemake(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words), cwd=self.folder, env=self.environment, capture_output=True,
            text=True, check=False,
        )  # fmt: skip

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start it as a group of processes, which ends by SIGKILL where it is still there."""
        with (self.folder / "head.log").open("wb") as log:
            process = subprocess.Popen(
                self.words(*words), cwd=self.folder, env=self.environment, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def logs(self) -> str:
        keys = self.server.keys(self.bucket, "built/results/smoke/logs/pretrain/diff/")
        return "".join(self.server.read(self.bucket, key).decode() for key in keys)


def job_of(key: str) -> str:
    """What the files of one training or evaluation, its log too, have in common; else the file."""
    match = re.search(r"(\w+)/(\w+)/(\d+)(?=[/.])", key)
    return key if match is None else match[0].replace("pretrain/", "runs/")


def test_a_lost_machine_does_not_cost_finished_jobs(
    finished: Checkout, server: Server, bucket: str, tmp_path: Path
) -> None:
    lost = Event()
    # However fast it trains, its last state is not in the bucket, so it has not ended.
    with refusing(server, f"/diff/0/.*{LAST}", 503, "SlowDown", after=lost) as slow:
        first = Elsewhere(finished, tmp_path / "one", slow, bucket)
        with first.started("table6") as head:
            wait_for(lambda: server.copies(bucket) or head.poll() is not None, "a checkpoint", 240)
            assert head.poll() is None, (first.folder / "head.log").read_text()
            os.killpg(head.pid, signal.SIGKILL)
        lost.set()
    shutil.rmtree(first.folder)
    left = server.copies(bucket)
    assert left and TRAINING not in "".join(server.keys(bucket))
    before = {
        key: server.client().head_object(Bucket=bucket, Key=key)["LastModified"]
        for key in server.keys(bucket, "built")
    }

    second = Elsewhere(finished, tmp_path / "two", server, bucket)
    ended = second.snakemake("table6")
    assert ended.returncode == 0, ended.stderr
    steps = [
        int(line.split()[-1]) for line in second.logs().splitlines() if "resuming from" in line
    ]
    assert steps and steps[0] >= int(max(left)[-8:])
    # A job whose files were going up one by one when the machine went had not finished.
    half = {job_of(key) for key in server.keys(bucket, "built") if key not in before}
    completed = {key: moment for key, moment in before.items() if job_of(key) not in half}
    assert any(key.endswith("manifest.json") for key in completed)
    for key, moment in completed.items():
        assert server.client().head_object(Bucket=bucket, Key=key)["LastModified"] == moment, key

    built = tmp_path / "built"
    server.download(bucket, "built/results/smoke", built)
    for part in ("runs/", "evaluations/", "tables/", "data/"):
        assert_same(finished.folder / "results" / "smoke", built, part)
    assert server.keys(bucket, "state") == []  # finished runs leave nothing
    sums = json.loads(server.read(bucket, "built/results/smoke/report.sha256.json"))
    pages = {f"results/smoke/{name}" for name in sums["sha256"]["files"]}
    assert {"results/smoke/report/index.html", "results/smoke/report/table6.html"} <= pages
    assert pages <= {key.removeprefix("built/") for key in server.keys(bucket, "built")}
    sent = {path.name for path in (second.folder / "results/mlflow/artifacts").rglob("*.*")}
    assert {"training.json", "history.csv", "0.json", "table6.json"} <= sent
    assert "artifact" not in ended.stderr
    assert f"report: s3://{bucket}/built/results/smoke/report/index.html" in ended.stderr
    third = Elsewhere(finished, tmp_path / "three", server, bucket)
    again = third.snakemake("-n", "table6")
    assert "Nothing to be done" in again.stdout + again.stderr, again.stdout
    more = third.snakemake("-n", "table6", "--config", "seeds=2")  # though a table is there
    assert "Train diff, seed " in more.stdout + more.stderr, more.stdout


@pytest.mark.parametrize(
    "wrong", ["no bucket", "no rights to write", "no such key", "no such secret", "full"]
)
def test_an_unwritable_bucket_raises_a_one_line_error_before_any_job(
    wrong: str, finished: Checkout, tmp_path: Path
) -> None:
    with serving(tmp_path) as server, ExitStack() as stack:
        server.client().create_bucket(Bucket="there")
        bucket, user = "there", server
        match wrong:
            case "no bucket":
                bucket, reason = "nowhere", "The specified bucket does not exist"
            case "no rights to write":
                user, reason = server.reader(), "Access Denied"
            case "no such key":
                server.reader()
                reason = "The AWS Access Key Id you provided does not exist in our records"
            case "no such secret":
                user = Server(server.url, server.reader().key, "canary-secret-of-another")
                reason = "The request signature we calculated does not match"
            case _:
                user = stack.enter_context(refusing(server, "", 507, "XMinioStorageFull"))
                reason = "XMinioStorageFull"
        ended = Elsewhere(finished, tmp_path / "one", user, bucket).snakemake("table6")
    assert ended.returncode != 0
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith(ERROR)]
    assert f"error: s3://{bucket}/built: cannot be written" in line and reason in line
    assert "Traceback" not in ended.stderr and "canary-secret" not in ended.stderr


def test_a_bucket_that_fills_up_under_a_training_does_not_stop_it(
    finished: Checkout, server: Server, bucket: str, tmp_path: Path
) -> None:
    made = Rebuild(tmp_path, finished.folder / "results" / "smoke", calls(finished.folder))
    made.drop("runs/diff")
    with refusing(server, "checkpoint-", 507, "XMinioStorageFull") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "difftransformer", *made.calls["pretrain"]],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env=full.environment
            | {"DIFFTRANSFORMER_STATE": f"s3://{bucket}/state", "MLFLOW_TRACKING_URI": "off"},
        )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stderr.splitlines() if line.startswith(ERROR)]
    assert 1 <= len(lines) <= 2 and len(set(lines)) == 1  # the first time, and at the end
    assert "XMinioStorageFull" in lines[0] and "checkpoints on this machine" in lines[0]
    assert "Traceback" not in ended.stderr and "canary-secret" not in ended.stderr
    made.assert_as_undisturbed("runs/")
    assert server.copies(bucket) == []


def test_a_bucket_that_fills_up_under_a_workflow_loses_nothing(
    finished: Checkout, server: Server, bucket: str, tmp_path: Path
) -> None:
    with refusing(server, f"built/{TRAINING.rpartition('/')[0]}", 507, "XMinioStorageFull") as full:
        first = Elsewhere(finished, tmp_path / "one", full, bucket)
        ended = first.snakemake(TRAINING)
    assert ended.returncode != 0
    (line,) = [line for line in ended.stderr.splitlines() if "XMinioStorageFull" in line]
    assert bucket in line and TRAINING.rpartition("/")[0] in line
    assert "Traceback" not in ended.stderr and "canary-secret" not in ended.stderr
    left = server.copies(bucket)
    assert left[-1] == LAST and len(left) <= 2  # nobody has its outputs yet
    shutil.rmtree(first.folder)
    second = Elsewhere(finished, tmp_path / "two", server, bucket)
    ended = second.snakemake(TRAINING)
    assert ended.returncode == 0, ended.stderr
    assert "had finished: publishing it again without training" in second.logs()
    server.download(bucket, "built/results/smoke", tmp_path / "built")
    assert_same(finished.folder / "results" / "smoke", tmp_path / "built", "runs/diff/")
    assert server.keys(bucket, "state") == []
