"""Tables built by Slurm through the committed profile, whatever a cluster does to them.

`make test-slurm` runs this; the ordinary suite leaves it out.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from attempts import assert_same
from small_cluster import CPUS, Cluster, missing, wait_for
from small_workflow import ROWS, Checkout, copy_of

pytestmark = pytest.mark.slurm
LONG = "\nruns:\n  diff: {set: {training: {steps: 12000, checkpoint_every: 500}}}\n"
"""Minutes, not seconds, so that there is something to disturb."""
PROFILE = ("--workflow-profile", "profiles/slurm")
SHORT = ("--set-resources", "pretrain:runtime=3")
"""Minutes: a training is told two before, so after its first."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if lacking := missing():
        pytest.fail(lacking)
    with tempfile.TemporaryDirectory(prefix="slurm") as folder, Cluster(Path(folder)) as running:
        yield running


@pytest.fixture
def on_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, cluster.environment[name])
    return cluster


def with_a_long_training(finished: Checkout, folder: Path) -> Checkout:
    """Two tables: one of a short training, and one of `diff`, which takes minutes."""
    folder.mkdir()
    copy = copy_of(finished.folder, folder)
    copy.edit("config/scales/smoke.yaml", "\nruns:\n", LONG)
    short = folder / "config" / "artifacts" / "table6.yaml"
    table = yaml.safe_load(short.read_text()) | {"claims": {}}
    for file, runs in ((short, ROWS[:1]), (short.with_name("long.yaml"), ROWS[1:2])):
        table["sections"][0]["against"] = runs[0]
        table["sections"][0]["rows"] = [{"run": run} for run in runs]
        file.write_text(yaml.safe_dump(table))
    settings = folder / "config" / "config.yaml"
    both = yaml.safe_load(settings.read_text()) | {"headline": ["table6", "long"]}
    settings.write_text(yaml.safe_dump(both))
    return copy


class Disturbed:
    """A workflow on the cluster, its head in a process of its own."""

    def __init__(self, checkout: Checkout, cluster: Cluster) -> None:
        self.folder, self._cluster = checkout.folder, cluster
        self._state = checkout.folder / "results" / "smoke" / "state" / "pretrain" / "diff" / "0"

    @contextmanager
    def head(self) -> Iterator[subprocess.Popen[bytes]]:
        """Start `snakemake`; what it says goes to head.log."""
        # Started in the background of a shell, this process and its own would not hear of Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        environment = os.environ | {"PYTHONPATH": str(self.folder / "src"), "OMP_NUM_THREADS": "1"}
        with (self.folder / "head.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "snakemake", *PROFILE, *SHORT],
                cwd=self.folder, env=environment, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def said(self) -> str:
        return (self.folder / "head.log").read_text()

    def training_job(self) -> str:
        """The running Slurm job that trains `diff`, once it has gone on from where it was."""
        before = self.step()
        wait_for(lambda: self._running() and self.step() > before, "the training to go on", 300)
        return self._running()[0]

    def _running(self) -> list[str]:
        return self._cluster.jobs("RUNNING", "rule_pretrain_wildcards_smoke_diff_0")

    def step(self) -> int:
        found = [path.name for path in self._state.glob("*/checkpoint-*") if path.suffix == ""]
        return max((int(name.rpartition("-")[2]) for name in found), default=0)

    def finished(self) -> dict[str, int]:
        """What jobs have finished so far, and when."""
        results = self.folder / "results" / "smoke"
        kinds = ("data/*/manifest.json", "runs/*/*/training.json", "evaluations/*/*/*.json")
        return {str(p): p.stat().st_mtime_ns for kind in kinds for p in results.glob(kind)}


def test_whatever_happens_the_table_is_the_same_and_nothing_is_done_twice(
    finished: Checkout, on_cluster: Cluster, tmp_path: Path
) -> None:
    cluster = on_cluster
    undisturbed = with_a_long_training(finished, tmp_path / "undisturbed")
    disturbed = with_a_long_training(finished, tmp_path / "disturbed")
    undisturbed.snakemake("--cores", "2")
    run = Disturbed(disturbed, cluster)
    with run.head() as head:
        training = run.training_job()

        urgent = ("--partition", "urgent", "--cpus-per-task", str(CPUS), "--output", "/dev/null")
        cluster.ask("sbatch", "--wait", *urgent, "--wrap", "true")  # preempts what runs
        assert run.training_job() == training
        assert cluster.restarts(training) == 1

        cluster.lose_node()
        cluster.start_node()
        assert run.training_job() == training
        assert cluster.restarts(training) == 2

        head.send_signal(signal.SIGINT)
        assert head.wait(120) != 0
        wait_for(
            lambda: not cluster.jobs("PENDING,RUNNING,COMPLETING"),
            "the head to take its jobs with it",
        )
    before = run.finished()
    assert any("transformer" in name for name in before)
    with run.head() as head:
        training = run.training_job()
        wait_for(lambda: cluster.restarts(training) == 1, "the time limit", 150)
        assert head.wait(300) == 0, run.said()
    assert {name: run.finished()[name] for name in before} == before
    assert "Error in rule" not in run.said() and "Trying to restart" not in run.said()
    assert_same(undisturbed.folder / "results" / "smoke", run.folder / "results" / "smoke")


def test_a_partition_that_does_not_exist_is_one_line(
    finished: Checkout, on_cluster: Cluster, tmp_path: Path
) -> None:
    folder = tmp_path / "checkout"
    folder.mkdir()
    checkout = copy_of(finished.folder, folder)
    ended = checkout.snakemake(
        *PROFILE, "--default-resources", "slurm_partition=nosuch", "--retries", "0", check=False
    )
    assert ended.returncode != 0
    said = ended.stdout + ended.stderr
    assert "invalid partition specified: nosuch" in said, said
