"""Jobs of a finished workflow, done again in a copy of its results, each in a process of its own.

An attempt is the call of the command line that a rule makes, in a forked process: imports are
shared, everything else is as in a job.
"""

import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest
from steps import step_words

from difftransformer.planning.plan import Plan
from difftransformer.provenance.checksums import compare_builds
from difftransformer.provenance.layout import REPRODUCIBLE

SUITE, DATASET, TABLE = "validation_slices", "stdlib_text", "table6"
FORK = multiprocessing.get_context("fork")
Calls = dict[str, list[str]]
MakeRebuild = Callable[..., "Rebuild"]
TRAINED = ("runs/diff", "evaluations/*/diff", "tables/*")
AGAIN = ("runs/diff", "state")  # without them a training starts from nothing


def calls(folder: Path) -> Calls:
    """Command lines of the jobs of ``folder``, by rule; training and evaluation of `diff`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        plan = Plan.load(Path("config"), {})
        jobs, here = plan.jobs, plan.jobs.layout
        manifest, trained = here.manifest(DATASET), here.training("diff", 0)
        ngrams = here.ngrams(DATASET, SUITE)
        result = here.evaluation(SUITE, "diff", 0)
        return {
            call[1]: call
            for call in (
                step_words(
                    "tokenize", jobs.dataset_config_file(DATASET),
                    {"tokenizer": here.tokenizer(DATASET)}, {"manifest": manifest},
                    "--code", jobs.code("tokenize"),
                ),
                step_words(
                    "count_ngrams", jobs.ngrams_config_file(DATASET, SUITE), {"data": manifest},
                    {"ngrams": ngrams},
                ),
                step_words(
                    "pretrain", jobs.write("run", jobs.run("diff")),
                    {"data": manifest}, {"result": trained},
                    "--code", jobs.code("pretrain", "diff"),
                ),
                step_words(
                    "evaluate", jobs.evaluation_config_file(SUITE, "diff"),
                    {"model": trained, "data": manifest, "ngrams": ngrams}, {"result": result},
                    "--code", jobs.code("evaluate", SUITE, "diff"),
                ),
                step_words(
                    "table", plan.artifacts.config_file(TABLE, "table"),
                    {"results": plan.artifacts.results(TABLE)},
                    {"page": f"{here.table(TABLE)}.html"},
                    "--code", plan.artifacts.code("table", TABLE),
                ),
            )
        }  # fmt: skip


class Rebuild:
    """A copy of finished results in which parts are missing; jobs make them again."""

    def __init__(self, folder: Path, reference: Path, job_calls: Calls) -> None:
        self.folder, self.reference, self.calls = folder, reference, job_calls
        self.results = folder / "results" / "smoke"
        for part in (*REPRODUCIBLE, "plan"):
            if (reference / part).exists():
                shutil.copytree(reference / part, self.results / part)
        self.state = self.results / "state"

    def drop(self, *parts: str) -> "Rebuild":
        """Take finished parts away, with what stands behind them."""
        for part in parts:
            for path in self.results.glob(part):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return self

    def start(
        self,
        words: str | list[str],
        *,
        tracking: str = "off",
        limit: int | None = None,
        stderr: int | None = None,
    ) -> ForkProcess:
        """Start the job of a rule, or any call of the command line.

        Args:
            words: The rule, or the words of the call.
            tracking: Address of the store.
            limit: No file may grow beyond this size in bytes.
            stderr: Descriptor for its output.
        """

        def target() -> None:
            os.chdir(self.folder)
            os.environ["MLFLOW_TRACKING_URI"] = tracking
            destination = os.devnull if stderr is None else stderr
            sys.stdout = sys.stderr = open(destination, "w", buffering=1)  # noqa: PTH123, SIM115
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            from difftransformer.cli import app

            app(self.calls[words] if isinstance(words, str) else words)

        process = FORK.Process(target=target)
        process.start()
        return process

    def run(
        self, words: str | list[str], *, tracking: str = "off", limit: int | None = None
    ) -> tuple[int, str]:
        """Run a call to its end; return exit status and output."""
        reader, writer = os.pipe()
        process = self.start(words, tracking=tracking, limit=limit, stderr=writer)
        os.close(writer)
        with open(reader, encoding="utf-8") as stream:  # noqa: PTH123
            output = stream.read()
        process.join(60)
        assert process.exitcode is not None, f"{words} hangs: {output}"
        return process.exitcode, output

    def complete(self, *rules: str) -> str:
        """Run jobs that must succeed; return their output."""
        output = ""
        for rule in rules:
            status, text = self.run(rule)
            assert status == 0, text
            output += text
        return output

    def strike(
        self,
        rule: str,
        ready: Callable[[], bool],
        blow: Callable[[ForkProcess], None],
        made: Sequence[str],
        pause: float = 0.001,
    ) -> int:
        """Start a job, and once it is ready deal it a blow that ends it; its exit status.

        A job that was through before the blow fell proves nothing: what it made is dropped, and it
        starts anew.
        """
        for _ in range(20):
            process = self.start(rule)
            wait_until(ready, process, pause)
            blow(process)
            process.join(60)
            assert process.exitcode is not None, f"{rule} goes on"
            if process.exitcode != 0:
                return process.exitcode
            self.drop(*made)
        raise AssertionError(f"{rule} was through before every blow")

    def kill_at(self, goal: int, pause: float = 0.0) -> None:
        """Kill a training ``pause`` seconds after the checkpoint of step ``goal``."""

        def kill(process: ForkProcess) -> None:
            time.sleep(pause)
            process.kill()

        status = self.strike("pretrain", lambda: self.newest_step() >= goal, kill, AGAIN)
        assert status == -signal.SIGKILL

    def checkpoints(self) -> list[Path]:
        """Return the complete checkpoints of the training, the newest last."""
        paths = self.state.glob("pretrain/diff/0/*/checkpoint-*")
        return sorted(path for path in paths if path.suffix == "")

    def newest_step(self) -> int:
        return max((int(path.name.partition("-")[2]) for path in self.checkpoints()), default=0)

    def leftovers(self, pattern: str) -> list[Path]:
        return sorted(self.results.rglob(pattern))

    def assert_as_undisturbed(self, part: str = "") -> None:
        """Everything, or a part, is there again to the byte, and nothing half-written is left."""
        assert_same(self.reference, self.results, part)


def assert_same(reference: Path, results: Path, part: str = "") -> None:
    """Assert that each file of the undisturbed build is there, with the same content."""
    compared = compare_builds(results, reference)
    wrong = [file.name for file in compared if not file.same and file.name.startswith(part)]
    assert not wrong, wrong
    halves = sorted(results.rglob("*.partial*"))
    assert not halves, halves


def wait_until(condition: Callable[[], bool], process: ForkProcess, pause: float = 0.001) -> bool:
    """Wait for ``condition``; False when the process ended before."""
    deadline = time.monotonic() + 180
    while not condition():
        if not process.is_alive():
            return condition()
        assert time.monotonic() < deadline, "the process hangs"
        if pause:
            time.sleep(pause)
    return True


@contextmanager
def mounted(folder: Path, mebibytes: int) -> Iterator[Path]:
    """Mount a file system of this size at ``folder``; skip where we may not."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
