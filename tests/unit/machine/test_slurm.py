"""Requests of a job to Slurm; tests/slurm runs the scheduler itself."""

import logging
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from difftransformer.errors import BackendError
from difftransformer.machine import slurm


def test_outside_slurm_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("PATH", "")
    assert not slurm.requeue()


@pytest.mark.parametrize(
    ("script", "output"),
    [(None, "No such file"), ("echo Access denied >&2; exit 1", "Access denied"), ("exit 0", "")],
)
def test_a_refusal_leaves_the_job_to_the_workflow(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    script: str | None,
    output: str,
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("PATH", str(tmp_path))
    if script is not None:
        (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "scontrol").chmod(0o755)
    with caplog.at_level(logging.WARNING):
        assert slurm.requeue() == (not output)
    assert output in caplog.text and bool(output) == ("the workflow retries it" in caplog.text)


def test_work_that_may_end_anywhere_is_requeued_before_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    (tmp_path / "scontrol").chmod(0o755)
    before = signal.getsignal(signal.SIGUSR1)
    try:
        slurm.requeue_before_time_limit()
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (tmp_path / "asked").read_text() == "requeue 7\n"


@pytest.mark.parametrize(
    ("script", "named", "refused"),
    [
        ("echo work; echo urgent; echo work", {"work"}, None),
        ("echo work; echo urgent", {"urgent,work"}, None),
        ("echo work; echo urgent", {"work", "urgent,nosuch"}, "nosuch.*; allowed: urgent, work$"),
        ("echo work; echo urgent", {"wrk"}, r"slurm_partition=wrk: .*; did you mean 'work'\?$"),
        ("echo 7", {7}, None),
        ("echo work; exit 1", {"nosuch"}, None),
        (None, {"nosuch"}, None),
    ],
)
def test_a_partition_is_refused_where_slurm_says_which_it_has(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str | None,
    named: set[object],
    refused: str | None,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if script is not None:
        (tmp_path / "sinfo").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "sinfo").chmod(0o755)
    with nullcontext() if refused is None else pytest.raises(BackendError, match=refused):
        slurm.require_partitions(named)


def test_process_started_with_blocked_signals_survives() -> None:
    with slurm.block_signals():
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    child.send_signal(signal.SIGUSR1)
    child.communicate(b"\n", timeout=60)
    assert child.returncode == 0
