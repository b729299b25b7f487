"""One process a job, one workflow a scale; a lock never outlives its process."""

import logging
import multiprocessing
import os
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from difftransformer.errors import UserError
from difftransformer.provenance.job import LOCK, exclusive, hold


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
    process = other_process(tmp_path)
    timer = threading.Timer(0.3, process.kill)  # the kernel frees the lock of a killed process
    started = time.monotonic()
    timer.start()
    with caplog.at_level(logging.WARNING), exclusive(tmp_path):
        assert time.monotonic() - started >= 0.3
        assert (tmp_path / LOCK).read_text().strip() == str(os.getpid())
    assert f"process {process.pid} is doing this job" in caplog.text
    timer.join()
    process.join()


def test_a_lock_to_hold_is_refused_with_the_pid(tmp_path: Path) -> None:
    process = other_process(tmp_path)
    with pytest.raises(UserError, match=f"process {process.pid} is building already"):
        hold(tmp_path / LOCK, "building already")
    process.kill()
    process.join()
    os.close(hold(tmp_path / LOCK, "building already"))
