"""The history alone: nothing here imports mlflow."""

import errno
import json
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from difftransformer.tracking.history import HISTORY_FILE, Sent, is_running, read_records
from difftransformer.tracking.run_context import start_run
from difftransformer.tracking.tracker import NullTracker, RunTracker


def make_tracker(state: Path, system_every: float = 10.0) -> RunTracker:
    names = {"stage": "pretrain", "name": "tiny/a/0", "job_id": "pretrain-a-0-x"}
    return RunTracker(state, **names, system_every=system_every)


def records(state: Path, kind: str) -> list[dict[str, Any]]:
    return [record for record in read_records(state)[0] if record["kind"] == kind]


def points(state: Path, name: str = "loss") -> list[tuple[int, float]]:
    result = records(state, "metrics")
    return [(r["step"], r["values"][name]) for r in result if name in r["values"]]


def test_nothing_is_written_before_a_flush(tmp_path: Path) -> None:
    tracker = make_tracker(tmp_path)
    tracker.log_metrics({"loss": 1.0}, 1)
    assert (tmp_path / HISTORY_FILE).read_bytes() == b""
    tracker.flush()
    assert points(tmp_path) == [(1, 1.0)]
    tracker.close("FINISHED")


def test_a_resumed_training_logs_each_point_once(tmp_path: Path) -> None:
    killed = make_tracker(tmp_path)
    for step in range(1, 8):
        killed.log_metrics({"loss": 1 / step, "speed": 10.0}, step)
        if step in (3, 6):
            killed.flush()  # then comes the checkpoint; the one of step 6 is torn by the kill
    os.close(killed._descriptor)  # as the kernel does
    resumed = make_tracker(tmp_path)
    resumed.rewind(3)
    for step in range(4, 10):
        resumed.log_metrics({"loss": 1 / step, "speed": 20.0}, step)
    resumed.close("FINISHED")
    assert points(tmp_path) == [(step, 1 / step) for step in range(1, 10)]
    assert [step for step, _ in points(tmp_path, "speed")] == list(range(1, 10))
    assert [r["status"] for r in records(tmp_path, "status")] == ["RUNNING", "RUNNING", "FINISHED"]
    assert {"interruptions": "1"} in [r["values"] for r in records(tmp_path, "tags")]


def test_a_rerun_keeps_equal_values_and_adds_changed_ones(tmp_path: Path) -> None:
    for accuracy in (0.5, 0.5, 0.75):
        tracker = make_tracker(tmp_path)
        tracker.log_metrics({"accuracy": accuracy, "undefined": float("nan")})
        tracker.log_params({"n": 2})
        tracker.close("FINISHED")
    assert points(tmp_path, "accuracy") == [(0, 0.5), (0, 0.75)]
    assert len(points(tmp_path, "undefined")) == 1
    assert len(records(tmp_path, "params")) == 1
    assert records(tmp_path, "tags") == []  # nothing was interrupted


def test_a_line_torn_by_a_kill_is_dropped(tmp_path: Path) -> None:
    killed = make_tracker(tmp_path)
    killed.log_metrics({"loss": 1.0}, 1)
    killed.flush()
    os.close(killed._descriptor)
    with (tmp_path / HISTORY_FILE).open("ab") as file:
        file.write(b'{"kind":"metrics","st')
    assert points(tmp_path) == [(1, 1.0)]
    resumed = make_tracker(tmp_path)
    resumed.log_metrics({"loss": 0.5}, 2)
    resumed.close("FINISHED")
    assert points(tmp_path) == [(1, 1.0), (2, 0.5)]


def test_damaged_line_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = json.dumps({"kind": "tags", "values": {"a": "b"}})
    (tmp_path / HISTORY_FILE).write_text(f"{good}\n\x00\x00garbage\n{good}\n")
    assert len(records(tmp_path, "tags")) == 2
    assert "damaged line" in caplog.text


def test_two_processes_never_write_one_history(tmp_path: Path) -> None:
    first, others = make_tracker(tmp_path), list[RunTracker]()
    waiting = threading.Thread(target=lambda: others.append(make_tracker(tmp_path)))
    waiting.start()
    waiting.join(0.2)
    assert not others and is_running(tmp_path)
    first.close("FINISHED")
    waiting.join()
    assert is_running(tmp_path)
    others[0].close("FINISHED")
    assert not is_running(tmp_path)


def test_a_full_disk_stops_nothing_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
from difftransformer.tracking.tracker import RunTracker
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
one = RunTracker(Path(sys.argv[1]), stage="a", name="b", job_id="c")
one.set_tags({"first": "x"})
one.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (400, resource.RLIM_INFINITY))
one.set_tags({"second": "x" * 500})
one.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
one.set_tags({"third": "x"})
one.flush()
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    names = [name for record in records(tmp_path, "tags") for name in record["values"]]
    assert names == ["first", "second", "third"]


def test_unsupported_characters_in_names_are_replaced(tmp_path: Path) -> None:
    tracker = make_tracker(tmp_path)
    tracker.log_params({"peak_flops": {"Some CPU (2 sockets) @ 3 GHz": 1e12}})
    tracker.close("FINISHED")
    (record,) = records(tmp_path, "params")
    assert list(record["values"]) == ["peak_flops.Some CPU _2 sockets_ _ 3 GHz"]


def test_system_load_is_tracked(tmp_path: Path) -> None:
    tracker = make_tracker(tmp_path, system_every=0.0)
    tracker.log_metrics({"loss": 1.0}, 5)
    tracker.close("FINISHED")
    assert points(tmp_path, "system/cpu_percent")[0][0] == 5
    assert 0 < points(tmp_path, "system/memory_gib")[0][1] < 1000
    assert points(tmp_path, "system/cpu_seconds")[-1][1] > 0


def test_status_tells_how_the_job_ended(tmp_path: Path) -> None:
    endings: dict[str, BaseException | None] = {
        "FINISHED": None,
        "FAILED": ValueError("x"),
        "KILLED": SystemExit(75),
    }
    for status, error in endings.items():
        state = tmp_path / status
        try:
            with start_run("tables", "t", "id", state, {}, {}, "sqlite:///unused.db"):
                if error is not None:
                    raise error
        except BaseException as caught:
            assert caught is error
        assert records(state, "status")[-1]["status"] == status


def test_tracking_off_writes_nothing(tmp_path: Path) -> None:
    with start_run("pretrain", "a", "id", tmp_path / "state", {"a": 1}, {}, None) as tracker:
        assert isinstance(tracker, NullTracker)
        tracker.log_metrics({"loss": 1.0}, 1)
        tracker.flush()
    assert list(tmp_path.iterdir()) == []


def test_a_job_of_seconds_never_imports_mlflow(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from difftransformer.tracking.run_context import start_run
with start_run("pretrain", "a", "id", Path(sys.argv[1]), {}, {}, "sqlite:///x.db") as tracker:
    tracker.log_metrics({"loss": 1.0}, 1)
    tracker.flush()
assert not {"mlflow", "torch", "pandas"} & set(sys.modules)
"""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=tmp_path)
    assert time.monotonic() - started < 5
    assert not (tmp_path / "x.db").exists()


def test_positions_of_several_stores_stand_beside_each_other(tmp_path: Path) -> None:
    secret = "https://user:canary@mlflow.example.org"
    Sent("run1", 10).save(tmp_path, secret)
    Sent("run2", 20).save(tmp_path, "sqlite:///a.db")
    assert Sent.load(tmp_path, secret) == Sent("run1", 10)
    assert Sent.load(tmp_path, "sqlite:///a.db") == Sent("run2", 20)
    assert Sent.load(tmp_path, "sqlite:///b.db") == Sent()
    for path in tmp_path.iterdir():
        assert "canary" not in path.name + path.read_text()


def test_warnings_of_tracking_do_not_name_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    uri = "http://user:canary@127.0.0.1:9"
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    with start_run("tables", "t", "id", tmp_path, {}, {}, uri) as tracker:
        tracker.flush()
    assert "canary" not in caplog.text
    assert "canary" not in (tmp_path / HISTORY_FILE).read_text()


def test_failed_writes_are_retried_without_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Half a line is there, and cannot be taken away until the disk has room again."""
    written = os.write
    tracker = RunTracker(tmp_path, stage="a", name="b", job_id="c")
    tracker.flush()

    def half(descriptor: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written(descriptor, data[:10])

    refused = Mock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO)))
    tracker.set_tags({"many": "values"})
    complete_size = (tmp_path / HISTORY_FILE).stat().st_size
    with monkeypatch.context() as full:
        full.setattr("os.write", half)
        tracker.flush()
        size = (tmp_path / HISTORY_FILE).stat().st_size
        assert size == complete_size  # incomplete lines are not sent
        full.setattr("os.ftruncate", refused)
        tracker.flush()
    assert "will try again" in caplog.text
    tracker.flush()
    kinds = [record["kind"] for record in read_records(tmp_path)[0]]
    assert kinds == ["job", "status", "tags"]
    tracker.close("FINISHED")
