"""Snakemake itself, or everything at once, is killed: the same command again completes.

Nothing that was finished is done again: the jobs of all attempts are compared with the list of the
first, and a training goes on from its checkpoint.
"""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from socket import gethostname

import psutil
import pytest
from attempts import TRAINED, assert_same, mounted
from small_workflow import Checkout

from difftransformer.provenance.checksums import compare_builds

TARGET = "results/smoke/tables/table6.csv"
EXPECTED = {
    "pretrain smoke diff 0",
    "evaluate smoke validation_slices diff 0",
    "table smoke table6",
}


class Workflow:
    """A finished workflow of its own in which the training of `diff` and what shows it is gone."""

    def __init__(self, finished: Checkout, folder: Path) -> None:
        self.folder, self.reference = folder, finished.folder / "results" / "smoke"
        shutil.copytree(finished.folder, folder, dirs_exist_ok=True)
        self.results = folder / "results" / "smoke"
        self._attempts = 0
        self.forget()

    def forget(self) -> None:
        """Take the training of `diff` away, and what shows it."""
        for part in (*TRAINED, "state/*/diff", "state/table"):
            for path in self.results.glob(part):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def start(self, target: str = TARGET, tracking: str = "off") -> "Attempt":
        self._attempts += 1
        log = self.folder / f"attempt-{self._attempts}.txt"
        return Attempt(self.folder, log, target, tracking)

    def newest_step(self) -> int:
        checkpoints = self.results.glob("state/pretrain/diff/0/*/checkpoint-????????")
        return max((int(path.name[-8:]) for path in checkpoints), default=0)

    def assert_as_undisturbed(self) -> None:
        assert_same(self.reference, self.results)


class Attempt:
    """A running snakemake in a process group of its own."""

    def __init__(self, folder: Path, log: Path, target: str, tracking: str) -> None:
        self._log = log
        with log.open("w") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "snakemake", target, "--cores", "2"],
                cwd=folder,
                env={
                    **os.environ,
                    "PYTHONPATH": str(folder / "src"),
                    "OMP_NUM_THREADS": "1",
                    "MLFLOW_TRACKING_URI": tracking,
                },
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def finished(self) -> set[str]:
        return set(re.findall(r"^\[\d+/\d+\] (.+) in [\d:]+$", self.output, re.MULTILINE))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 300
        while not condition():
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.002)

    def kill(self, everything: bool) -> bool:
        """Kill snakemake, whose jobs live on, or its whole process group.

        False when it was through before.
        """
        jobs = psutil.Process(self.process.pid).children(recursive=True)
        if everything:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        if self.process.wait() == 0:
            return False
        assert self.process.returncode == -signal.SIGKILL, self.output
        if everything:
            _, alive = psutil.wait_procs(jobs, timeout=10)
            assert not [job for job in alive if lives(job)]
        return True

    def complete(self) -> set[str]:
        assert self.process.wait(300) == 0, self.output
        return self.finished()


def lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def workflow(finished: Checkout, tmp_path: Path) -> Workflow:
    return Workflow(finished, tmp_path / "copy")


@pytest.mark.slow
def test_killed_workflow_resumes_and_a_concurrent_one_is_rejected(workflow: Workflow) -> None:
    """The quick one: a kill of the whole group, and two calls in one folder after it."""
    killed = workflow.start()
    killed.wait_for(lambda: workflow.newest_step() >= 50)
    assert killed.kill(everything=True)
    reached = workflow.newest_step()
    resumed = workflow.start()
    lock = workflow.results / "state" / "workflow.lock"
    resumed.wait_for(lambda: lock.read_text().startswith(f"{resumed.process.pid} on "))
    resumed.process.send_signal(signal.SIGSTOP)  # however quick its jobs are, it is not through
    concurrent = workflow.start()
    assert concurrent.process.wait(120) != 0
    resumed.process.send_signal(signal.SIGCONT)
    assert (
        f"error: process {resumed.process.pid} on {gethostname()} is building results/smoke already"
        in concurrent.output
    )
    assert "Traceback" not in concurrent.output
    assert killed.finished() | resumed.complete() == EXPECTED
    assert not killed.finished() & resumed.finished()
    assert f"resuming from the checkpoint of step {reached}" in resumed.output
    workflow.assert_as_undisturbed()


@pytest.mark.exhaustive
@pytest.mark.parametrize("everything", [False, True], ids=["snakemake", "group"])
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_a_random_moment(workflow: Workflow, everything: bool, seed: int) -> None:
    moment, longest = random.Random(2 * seed + everything), 1.0
    while True:
        first = workflow.start()
        wait_for_a_moment(workflow, first, seed, moment, longest)
        if first.kill(everything):
            break
        workflow.forget()  # it was through before the kill
        longest /= 2
    begun = workflow.newest_step() > 0
    again = workflow.start()
    done = again.complete()
    assert first.finished() | done == EXPECTED
    assert not first.finished() & done, "a finished job was done again"
    if begun and "pretrain smoke diff 0" in done:
        assert "resuming from the checkpoint" in again.output
    workflow.assert_as_undisturbed()


def wait_for_a_moment(
    workflow: Workflow, attempt: Attempt, seed: int, moment: random.Random, longest: float
) -> None:
    """Return at a moment that the seed chooses the part of the workflow for."""
    if seed == 0:  # at any time from its start on
        time.sleep(moment.uniform(0.5, 10 * longest))
    elif seed == 3:  # behind the training
        evaluated = workflow.results / "evaluations" / "validation_slices" / "diff"
        attempt.wait_for(lambda: evaluated.exists() or "[1/3]" in attempt.output)
        time.sleep(moment.uniform(0, 3 * longest))
    else:
        goal = moment.randrange(0, 150)
        attempt.wait_for(lambda: workflow.newest_step() >= goal)
        time.sleep(moment.uniform(0, 0.2 * longest))


@pytest.mark.exhaustive
@pytest.mark.parametrize("everything", [False, True], ids=["snakemake", "group"])
def test_sigterm_loses_nothing(workflow: Workflow, everything: bool) -> None:
    first = workflow.start()
    first.wait_for(lambda: workflow.newest_step() >= 20)
    if everything:
        os.killpg(first.process.pid, signal.SIGTERM)
    else:
        first.process.terminate()
    assert first.process.wait(60) != 0
    reached = workflow.newest_step()
    again = workflow.start()
    done = again.complete()
    assert first.finished() | done == EXPECTED
    assert not first.finished() & done
    if everything:
        assert f"resuming from the checkpoint of step {reached}" in again.output
    else:  # told alone, Snakemake lets the job that runs end
        assert "pretrain smoke diff 0" in first.finished()
    workflow.assert_as_undisturbed()


@pytest.mark.slow
def test_ctrl_c_while_tracking_is_sent_keeps_what_is_done(workflow: Workflow) -> None:
    shutil.copytree(workflow.reference / "runs/diff", workflow.results / "runs/diff")
    shutil.copytree(
        workflow.reference / "evaluations", workflow.results / "evaluations", dirs_exist_ok=True
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(300)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        attempt = workflow.start(tracking=address)
        connection, _ = silent.accept()  # the last job has ended
        os.killpg(attempt.process.pid, signal.SIGINT)
        assert attempt.complete() == {"table smoke table6"}
        connection.close()
    assert "what is left of the tracking goes with the next call" in attempt.output
    assert "Traceback" not in attempt.output
    workflow.assert_as_undisturbed()


@pytest.mark.exhaustive
def test_a_read_only_results_folder_is_named(
    finished: Checkout, workflow: Workflow, tmp_path: Path
) -> None:
    with mounted(tmp_path / "disk", mebibytes=48) as disk:
        shutil.copytree(workflow.folder / "results", disk / "results", symlinks=True)
        shutil.rmtree(workflow.folder / "results")
        (workflow.folder / "results").symlink_to(disk / "results")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        first = workflow.start()
        assert first.process.wait(120) != 0
        assert "Read-only file system" in first.output
        assert "Traceback" not in first.output
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        assert workflow.start().complete() == EXPECTED
        workflow.assert_as_undisturbed()


@pytest.mark.exhaustive
def test_a_damaged_shard_stops_the_workflow_and_is_mended(workflow: Workflow) -> None:
    data = workflow.results / "data" / "stdlib_text"
    shard = data / "shards" / "train-00001.bin"
    content = bytearray(shard.read_bytes())
    content[100] ^= 1
    shard.write_bytes(content)
    first = workflow.start()
    assert first.process.wait(120) != 0
    assert f"{shard.name}: content differs" in first.output
    (data / "manifest.json").unlink()
    # The dataset by itself first: its users are not run again for a manifest with the same content.
    mended = workflow.start("results/smoke/data/stdlib_text/manifest.json").complete()
    assert mended == {"tokenize smoke stdlib_text"}
    assert first.finished() | workflow.start().complete() == EXPECTED
    workflow.assert_as_undisturbed()


@pytest.mark.exhaustive
def test_a_rebuild_aside_is_the_same(finished: Checkout) -> None:
    """The steps of `make verify`."""
    rebuilt = finished.folder / "results-verify"
    try:
        finished.snakemake("--cores", "2", "--drop-metadata", "--config", "results=results-verify")
        compared = compare_builds(finished.folder / "results" / "smoke", rebuilt / "smoke")
    finally:
        shutil.rmtree(rebuilt, ignore_errors=True)
    assert [file.name for file in compared if not file.same] == []
    kinds = {Path(file.name).suffix for file in compared}
    assert {".bin", ".npy", ".safetensors", ".csv", ".md", ".tex", ".svg", ".json"} <= kinds
    assert finished.planned() == set()
