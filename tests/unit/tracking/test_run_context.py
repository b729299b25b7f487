"""Each case is a process: exit status, log, history, and the lock that it holds."""

import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from socket import gethostname

import pytest

from difftransformer.errors import UserError
from difftransformer.machine import slurm
from difftransformer.provenance.result import read_result
from difftransformer.tracking.run_context import LOCK, exclusive, hold

FRAME = """
import os, sys, time
from pathlib import Path
from difftransformer.errors import ConfigError
from difftransformer.tracking.run_context import JobIdentity, run_context
identity = JobIdentity(
    rule="evaluate", scale="smoke", run="diff_v1", seed=1, suite="slices",
    fingerprint="ab" * 32, upstream=("pretrain-diff_v1-1-cdcdcdcdcd",),
)
state, log = Path("state"), Path("logs/job.log")
with run_context(identity, state=state, params={"n": 2}, log=log) as current:
    BODY
"""


def run(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", FRAME.replace("BODY", body)],
        cwd=folder,
        env={**os.environ, "MLFLOW_TRACKING_URI": "sqlite:///x.db"},
        capture_output=True,
        text=True,
        check=False,
    )


def history(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "state/tracking.jsonl").open()]


def test_a_job_leaves_result_log_and_history(tmp_path: Path) -> None:
    body = "current.write_result(Path('r.json'), 'evaluation', {'loss': 2.5, 'none': None}, {})"
    done = run(tmp_path, body)
    assert (done.returncode, done.stderr) == (0, "")
    result = read_result(tmp_path / "r.json")
    assert result.job_id == "evaluate-diff_v1-slices-1-ababababab"
    assert result.metrics == {"loss": 2.5, "none": None}
    assert result.provenance.fingerprint == "ab" * 32
    records = history(tmp_path)
    assert records[0]["name"] == "smoke/diff_v1/1/slices"
    tags = next(record["values"] for record in records if record["kind"] == "tags")
    assert isinstance(tags, dict)
    assert tags["upstream"] == "pretrain-diff_v1-1-cdcdcdcdcd"
    assert {"rule", "git_commit", "version.python", "hardware.cpu"} <= set(tags)
    assert "tracked/r.json" in [record.get("path") for record in records]
    assert records[-1]["status"] == "FINISHED"


def test_a_job_that_slurm_starts_again_keeps_what_its_log_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "import logging; logging.getLogger('difftransformer').info('attempt')"
    for count, attempts in (("0", 1), ("0", 1), ("1", 2)):
        monkeypatch.setenv("SLURM_RESTART_COUNT", count)
        assert run(tmp_path, body).returncode == 0
        assert (tmp_path / "logs/job.log").read_text().count("attempt") == attempts


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        ("raise ConfigError('a: b\\n  c')", 2, "error: a: b c"),
        ("raise ValueError('ours')", 1, "error: ValueError: ours (traceback above)"),
        (
            "raise OSError(28, 'No space left on device', 'shard.bin')",
            2,
            "error: shard.bin: No space left on device",
        ),
        ("Path('missing').read_text()", 1, "error: FileNotFoundError: "),
    ],
)
def test_an_error_is_one_line_in_log_and_on_stderr(
    tmp_path: Path, body: str, status: int, line: str
) -> None:
    ended = run(tmp_path, body)
    log = (tmp_path / "logs/job.log").read_text()
    assert ended.returncode == status
    assert ended.stderr == log
    assert log.splitlines()[-1].startswith(line)
    assert ("Traceback" in log) == (status == 1)
    assert history(tmp_path)[-1]["status"] == "FAILED"


def test_sigterm_ends_as_resumable(tmp_path: Path) -> None:
    body = "print('ready', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", FRAME.replace("BODY", body)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    started = time.monotonic()
    assert process.wait(timeout=10) == 128 + signal.SIGTERM
    assert time.monotonic() - started < 5
    assert history(tmp_path)[-1]["status"] == "KILLED"
    assert "warning: stopped: SIGTERM" in (tmp_path / "logs/job.log").read_text()


def keep(folder: Path, sender: Connection) -> None:
    with exclusive(folder):
        sender.send(os.getpid())
        sender.recv()


def other_process(folder: Path) -> multiprocessing.context.ForkProcess:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=keep, args=(folder, there), daemon=True
    )
    process.start()
    assert here.recv() == process.pid
    return process


def test_the_second_process_waits_for_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = other_process(tmp_path / "older")  # of other settings, with the same outputs
    timer = threading.Timer(0.3, process.kill)  # the kernel frees the lock of a killed process
    started = time.monotonic()
    timer.start()
    with caplog.at_level(logging.WARNING), exclusive(tmp_path / "newer"):
        assert time.monotonic() - started >= 0.3
        assert (tmp_path / LOCK).read_text().strip() == f"{os.getpid()} on {gethostname()}"
    assert f"process {process.pid} on {gethostname()} is running this job" in caplog.text
    timer.join()
    process.join()


def test_who_waits_goes_back_to_slurms_queue_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, requeued, ours = other_process(tmp_path / "any"), threading.Event(), os.getpid()
    monkeypatch.setattr(slurm, "job_id", lambda: "7")
    monkeypatch.setattr(slurm, "requeue", requeued.set)

    def remind() -> None:
        last = time.monotonic() + 10
        while signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN and time.monotonic() < last:
            time.sleep(0.01)  # it does not wait yet
        os.kill(ours, signal.SIGUSR1)
        requeued.wait(1)
        process.kill()  # Slurm would end us first

    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        reminder = threading.Thread(target=remind)
        reminder.start()
        with exclusive(tmp_path / "any"):
            assert requeued.is_set()
            assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
        reminder.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    process.join()


def test_a_lock_to_hold_is_refused_with_the_pid(tmp_path: Path) -> None:
    process = other_process(tmp_path / "any")
    with pytest.raises(
        UserError, match=f"process {process.pid} on {gethostname()} is building already"
    ):
        hold(tmp_path / LOCK, "building already")
    process.kill()
    process.join()
    os.close(hold(tmp_path / LOCK, "building already"))
