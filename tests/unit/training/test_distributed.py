"""Distributed trainings, started by the command, against a training in a single process."""

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file
from steps import step_words
from tiny_training import make_run_config, train_in

from difftransformer.models.attention.registry import variants
from difftransformer.tracking.run_context import exclusive

STEPS = 40
SETTINGS = {
    "steps": STEPS, "batch_size": 8, "micro_batch_size": 2, "validate_every": 20, "log_every": 1,
    "checkpoint_every": 10, "save_checkpoints_at": [0.5],
}  # fmt: skip


class Run:
    """One training in a folder; each call resumes it with the given number of processes."""

    def __init__(
        self,
        folder: Path,
        dataset: Path,
        variant: str = "diff_v1",
        parent: "Run | None" = None,
        **more: Any,
    ) -> None:
        """``parent``: the finished run that it continues."""
        self.folder, self._dataset, self._variant = folder, dataset, variant
        self._settings, self._parent = SETTINGS | more, parent
        folder.mkdir()

    def start(
        self, world_size: int, limit: int | None = None, **more: Any
    ) -> subprocess.Popen[str]:
        settings = self._settings | more | {"world_size": world_size}
        run_config = make_run_config(self._variant, **settings)
        if self._parent is not None:
            run_config = run_config.model_copy(update={"run": "longer", "init_from": self._variant})
        path = self.folder / f"run_config-{world_size}.json"
        path.write_text(run_config.model_dump_json())
        inputs = {"data": self._dataset / "manifest.json"}
        if self._parent is not None:
            inputs["model"] = self._parent.folder / "out" / "training.json"
        output = {"result": self.folder / "out" / "training.json"}
        log = self.folder / "training.log"
        words = step_words("pretrain", path, inputs, output, "--log", str(log))
        limited = [] if limit is None else ["prlimit", f"--fsize={limit}"]
        return subprocess.Popen(
            [*limited, sys.executable, "-m", "difftransformer", *words],
            cwd=self.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": "off"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(self, world_size: int, **more: Any) -> str:
        process = self.start(world_size, **more)
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output
        return output

    def disturbed(
        self, number: signal.Signals, whom: str, world_size: int = 2, step: int = 10
    ) -> tuple[str, int]:
        """Train up to a step, signal the second rank or the launcher; return output and status."""
        process = self.start(world_size)
        self.wait_for(step, process)
        os.kill(_children(process.pid)[1] if whom == "rank" else process.pid, number)
        output, _ = process.communicate(timeout=120)
        return output, process.returncode

    def refused(self, world_size: int, limit: int | None = 30_000) -> str:
        """Train with a file size limit below the size of a shard; return the output."""
        process = self.start(world_size, limit)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 2, output
        assert limit is None or ("(File too large)" in output and "make room there" in output)
        assert_single_error(output)
        return output

    def losses(self) -> torch.Tensor:
        with (self.folder / "out" / "history.csv").open() as file:
            return torch.tensor([float(row["loss"]) for row in csv.DictReader(file)])

    def weights(self) -> dict[str, torch.Tensor]:
        return load_file(self.folder / "out" / "model.safetensors")

    def state(self) -> Path:
        return next(self.folder.glob("results/unit/state/pretrain/*/0/*/"))

    def steps(self) -> list[int]:
        checkpoints = self.folder.glob("results/unit/state/pretrain/*/0/*/checkpoint-*")
        return sorted(int(path.name[-8:]) for path in checkpoints if path.name[-8:].isdecimal())

    def wait_for(self, step: int, process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + 120
        while max(self.steps(), default=0) < step and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def distance(actual: Run, expected: Run) -> float:
    """Return the largest relative difference of a loss; AdamW amplifies rounding in the weights."""
    expected_weights = expected.weights()
    for name, tensor in actual.weights().items():
        difference = (tensor - expected_weights[name]).abs().max()
        assert float(difference / tensor.abs().max()) < 1e-4, name
    return float(((actual.losses() - expected.losses()) / actual.losses()).abs().max())


def assert_same_bytes(*runs: Run) -> None:
    for name in ("model.safetensors", "history.csv"):
        first, second = ((run.folder / "out" / name).read_bytes() for run in runs)
        assert first == second, name


def assert_single_error(output: str) -> None:
    """Assert that the failing process, and no other, reports one error line."""
    assert len([line for line in output.splitlines() if line.startswith("error: ")]) == 1, output
    assert "Traceback" not in output and "bug of this program" not in output, output


@pytest.fixture(scope="module")
def single_process_run(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Run:
    run = Run(tmp_path_factory.mktemp("alone") / "run", text)
    train_in(run.folder.parent, text)(make_run_config(**SETTINGS), "run")
    return run


@pytest.fixture(scope="module")
def two_process_run(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Run:
    run = Run(tmp_path_factory.mktemp("together") / "run", text)
    run(2)
    return run


def test_two_processes_match_one_process(single_process_run: Run, two_process_run: Run) -> None:
    assert distance(single_process_run, two_process_run) < 1e-6
    ours, theirs = (
        json.loads((run.folder / "out" / "training.json").read_text())["metrics"]
        for run in (single_process_run, two_process_run)
    )
    assert ours.keys() == theirs.keys()
    assert theirs["validation_loss"] == pytest.approx(ours["validation_loss"], rel=1e-6)
    half = f"out/intermediate/step-{STEPS // 2:08d}.safetensors"
    weights = [load_file(run.folder / half) for run in (single_process_run, two_process_run)]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, rtol=1e-5, atol=1e-6)


def test_checkpoint_is_sharded_safetensors_with_checksums(two_process_run: Run) -> None:
    newest = two_process_run.state() / f"checkpoint-{STEPS:08d}"
    files = {path.name for path in newest.iterdir()}
    shards = {name for name in files if name.startswith("shard-")}
    assert len(shards) == 2 and all(name.endswith(".safetensors") for name in shards)
    assert json.loads((newest / "sums.json").read_text()).keys() == shards | {"state.json"}


@pytest.mark.parametrize(
    "signalled", ["rank", pytest.param("launcher", marks=pytest.mark.exhaustive)]
)
def test_stopped_or_killed_run_resumes_to_the_same_bytes(
    tmp_path: Path, text: Path, two_process_run: Run, signalled: str
) -> None:
    run = Run(tmp_path / "run", text)
    output, status = run.disturbed(signal.SIGTERM, signalled)
    assert status == os.EX_TEMPFAIL, output
    stopped = run.steps()[-1]
    assert len(run.steps()) >= 2 and stopped < STEPS - 10
    output, status = run.disturbed(signal.SIGKILL, "rank", step=stopped // 10 * 10 + 10)
    assert status == 2
    assert f"resuming from the checkpoint of step {stopped}" in output
    assert "error: process 1 of 2 was ended by SIGKILL" in output
    assert_single_error(output)
    assert_single_error((run.folder / "training.log").read_text())
    run(2)
    assert_same_bytes(run, two_process_run)


@pytest.mark.slow
def test_launcher_waits_for_another_job_with_the_same_state(
    tmp_path: Path, text: Path, two_process_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run", text)
    run.disturbed(signal.SIGTERM, "launcher")
    monkeypatch.setenv("DIFFTRANSFORMER_COLLECTIVE_TIMEOUT", "3")
    with exclusive(run.state()):
        process = run.start(2)
        time.sleep(12)  # more than the processes would wait for each other
        assert process.poll() is None and not _children(process.pid)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and "waiting until it ends" in output, output
    assert_same_bytes(run, two_process_run)


@pytest.mark.slow
def test_full_disk_gives_one_error_and_keeps_checkpoints(tmp_path: Path, text: Path) -> None:
    run = Run(tmp_path / "run", text, steps=20, save_checkpoints_at=[])
    output, status = run.disturbed(signal.SIGTERM, "launcher", step=10)
    assert status == os.EX_TEMPFAIL, output
    before = run.steps()
    output = run.refused(2)
    assert "error: checkpoint of step 20 could not be written to" in output
    assert f"the latest complete one is of step {before[-1]}: make room there" in output
    assert run.steps() == before


@pytest.mark.slow
def test_full_disk_for_intermediate_weights_gives_one_error(tmp_path: Path, text: Path) -> None:
    run = Run(tmp_path / "run", text, save_checkpoints_at=[0.1])
    assert "error: weights of step 4 could not be written to" in run.refused(2)  # by the leader


@pytest.mark.slow
def test_divergence_is_reported_once(tmp_path: Path, text: Path) -> None:
    run = Run(tmp_path / "run", text, divergence_loss=1.0, warmup_steps=0)
    assert "error: training diverged at step 1/40" in run.refused(2, limit=None)


@pytest.mark.exhaustive
def test_twenty_random_kills_end_in_the_same_bytes(tmp_path: Path, text: Path) -> None:
    settings = {"steps": 2000, "checkpoint_every": 15, "log_every": 50, "save_checkpoints_at": []}
    undisturbed = Run(tmp_path / "undisturbed", text, **settings)
    undisturbed(2)
    run, moment, reached = Run(tmp_path / "run", text, **settings), random.Random(0), 0
    for kill in range(20):
        process = run.start(2)
        run.wait_for(reached + 15, process)
        time.sleep(moment.uniform(0.0, 0.1))
        victims = [process.pid, *_children(process.pid)]
        assert len(victims) == 3, f"kill {kill} came too late"
        os.kill(moment.choice(victims), signal.SIGKILL)
        if process.wait(120) == -signal.SIGKILL:  # ranks outlive their launcher
            for pid in victims[1:]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=120)
        assert run.steps()[-1] >= reached
        reached = run.steps()[-1]
    run(2)
    assert_same_bytes(run, undisturbed)


def test_resuming_with_another_world_size_matches_within_rounding(
    tmp_path: Path, text: Path, single_process_run: Run
) -> None:
    run = Run(tmp_path / "run", text)
    stopped = []
    for world_size, step in ((2, 10), (1, 20)):
        output, status = run.disturbed(signal.SIGTERM, "launcher", world_size, step)
        assert status == os.EX_TEMPFAIL, output
        stopped.append(run.steps()[-1])
    assert "made with world_size 2, now it is 1" in output
    assert f"resuming from the checkpoint of step {stopped[0]}" in output
    output = run(2)
    assert "made with world_size 1, now it is 2" in output
    assert f"resuming from the checkpoint of step {stopped[1]}" in output
    assert distance(run, single_process_run) < 1e-6


@pytest.mark.slow
def test_two_processes_continue_a_single_process_run(
    tmp_path: Path, text: Path, single_process_run: Run
) -> None:
    runs = [Run(tmp_path / name, text, parent=single_process_run) for name in ("one", "two")]
    runs[0](1)
    output, status = runs[1].disturbed(signal.SIGTERM, "rank")
    assert status == os.EX_TEMPFAIL, output
    assert f"resuming from the checkpoint of step {runs[1].steps()[-1]}" in runs[1](2)
    assert distance(runs[1], runs[0]) < 1e-6
    parent_loss = single_process_run.losses()[0]
    assert runs[1].losses()[0] < parent_loss - 0.5  # it starts from the parent's weights


@pytest.mark.exhaustive
def test_bf16_with_two_processes_is_close_to_one_process(tmp_path: Path, text: Path) -> None:
    """Theirs are gathered in bf16, gains among them, which one process multiplies in fp32."""
    runs = [Run(tmp_path / name, text, "diff_v2", precision="bf16") for name in ("one", "two")]
    for world_size, run in enumerate(runs, start=1):
        run(world_size)
    single_process, two_processes = (run.losses() for run in runs)
    assert 0 < float(((single_process - two_processes) / single_process).abs().max()) < 0.02
    assert single_process[-1] < single_process[0] / 2
    made = runs[1].weights()
    assert {tensor.dtype for tensor in made.values()} == {torch.float32}
    shutil.rmtree(runs[1].folder / "out")
    runs[1](2)  # has nothing to train, and publishes what it had
    assert all(torch.equal(tensor, made[name]) for name, tensor in runs[1].weights().items())


@pytest.mark.exhaustive
def test_checkpoint_with_a_damaged_shard_is_skipped(tmp_path: Path, text: Path) -> None:
    run = Run(tmp_path / "run", text, steps=20, save_checkpoints_at=[])
    run(2)
    shard = next((run.state() / "checkpoint-00000020").glob("shard-00002-*"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    output = run(2)
    assert "is damaged" in output and "resuming from the checkpoint of step 10" in output


@pytest.mark.exhaustive
@pytest.mark.parametrize("variant", [name for name in variants() if name != "diff_v1"])
def test_other_variants_match_with_two_processes(tmp_path: Path, text: Path, variant: str) -> None:
    runs = [Run(tmp_path / name, text, variant, steps=10) for name in ("one", "two")]
    for world_size, run in enumerate(runs, start=1):
        run(world_size, save_checkpoints_at=[])
    assert distance(*runs) < 1e-6
    single_process, two_processes = (
        json.loads((run.folder / "out" / "training.json").read_text()) for run in runs
    )
    expected = pytest.approx(single_process["metrics"], rel=1e-4)  # the lambdas among them
    assert two_processes["metrics"] == expected


def test_unexpected_number_of_processes_is_rejected(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    process = Run(tmp_path / "run", text).start(1)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "error: training.world_size is 1, but 3 processes were started" in output


def _children(pid: int) -> list[int]:
    pids = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            if "difftransformer" in child.cmdline():
                pids.append(child.pid)
    return sorted(pids)
