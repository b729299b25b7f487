"""Trackers of jobs: one appends to the job's history, the other does nothing."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from difftransformer.machine.locks import wait_for_lock
from difftransformer.provenance.atomic import link
from difftransformer.tracking.history import (
    ARTIFACTS,
    HISTORY_FILE,
    HISTORY_ID,
    TERMINAL,
    Record,
    complete_size,
    read_records,
)

_CHARACTERS = r"\w\-./: "
_NAME, _OTHER_CHARACTERS = (
    re.compile(rf"[{_CHARACTERS}]{{1,250}}"),
    re.compile(rf"[^{_CHARACTERS}]"),
)

logger = logging.getLogger(__name__)


class NullTracker:
    """Tracker for tracking switched off: it has the methods of `RunTracker`, which do nothing."""

    def _ignore(self, *_args: Any, **_kwargs: Any) -> None:
        """Do nothing."""

    log_params = log_metrics = log_artifact = set_tags = rewind = flush = close = _ignore


class RunTracker:
    """Tracker that appends to the history in a state folder, or starts a history.

    No method fails or waits because of an MLflow store.

    Args:
        state: State folder of this job and fingerprint only.
        stage: Name of the MLflow experiment.
        name: Name of the job within its stage, without its fingerprint.
        job_id: Id of the job.
        flush_every: Seconds between writes of metrics to disk.
        system_every: Seconds between measurements of CPU and memory.
    """

    def __init__(
        self,
        state: Path,
        *,
        stage: str,
        name: str,
        job_id: str,
        flush_every: float = 30.0,
        system_every: float = 10.0,
    ) -> None:
        assert _NAME.fullmatch(stage) and _NAME.fullmatch(name), (stage, name)
        self._state = state
        self._flush_every, self._system_every = flush_every, system_every
        state.mkdir(parents=True, exist_ok=True)
        path = state / HISTORY_FILE
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        wait_for_lock(self._descriptor)
        self._size = complete_size(state)  # the next write removes an incomplete last line
        self._buffer: list[Record] = []
        self._points: dict[tuple[str, int], float] = {}
        self._texts: dict[tuple[str, str], str] = {}
        self._replaying, self._began = False, _now()
        self._first_finish: int | None = None
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first call always returns 0
        self._last_system = self._last_flush = time.monotonic()
        if self._size == 0:
            job = {"stage": stage, "name": name, "job_id": job_id, HISTORY_ID: uuid.uuid4().hex}
            self._buffer.append({"kind": "job", **job, "at": self._began})
        self._load_recorded()
        self._append("status", status="RUNNING")

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Record settings as params with dotted names; the first value of a name is kept."""
        self._log_texts("params", _flat(params))

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Record tags of the run; the last value of a name is kept."""
        self._log_texts("tags", {key: str(value) for key, value in tags.items()})

    def log_metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Record metrics at ``step``; they are written to disk every `flush_every` seconds."""
        if time.monotonic() - self._last_system >= self._system_every:
            values = {**values, **self._system_load()}
        self._log_points(values, step)
        if time.monotonic() - self._last_flush >= self._flush_every:
            self.flush()

    def log_artifact(self, path: Path) -> None:
        """Copy a small file in its present state next to the history, to be sent to the store.

        The copy is needed since the workflow may move or rebuild the file before it is sent.
        """
        try:
            link(path, self._state / ARTIFACTS / path.name)
        except OSError as error:
            logger.warning("tracking: artifact %s cannot be copied (%s)", path, error.strerror)
            return
        self._append("artifact", path=f"{ARTIFACTS}/{path.name}")

    def rewind(self, step: int) -> None:
        """Prepare for a job that resumes after ``step``; step 0 means from scratch.

        Metrics of later steps in the history are kept. The resumed job logs them again, some with
        another value, such as its speed, and these repeated metrics are ignored.
        """
        self._replaying = True
        self._points = {key: value for key, value in self._points.items() if key[1] > step}

    def flush(self) -> None:
        """Write everything recorded so far to disk, with fsync; to be called before a checkpoint.

        After a disk error the job continues, and the records stay in memory for the next write.
        """
        self._last_flush = time.monotonic()
        if not self._buffer:
            return
        lines = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in self._buffer)
        remaining = data = lines.encode()
        try:
            os.ftruncate(self._descriptor, self._size)
            while remaining:
                remaining = remaining[os.write(self._descriptor, remaining) :]
            os.fsync(self._descriptor)
        except OSError as error:
            with suppress(OSError):  # otherwise half a line would count as unsent
                os.ftruncate(self._descriptor, self._size)
            path = self._state / HISTORY_FILE
            logger.warning("tracking: cannot write %s (%s); will try again", path, error)
            return
        self._size += len(data)
        self._buffer.clear()

    def close(self, status: str) -> None:
        """Record the final status and close the history; records that cannot be written are lost.

        Args:
            status: FINISHED, FAILED or KILLED.
        """
        assert status in TERMINAL, status
        times, memory = self._process.cpu_times(), self._process.memory_info().rss / 2**30
        summary = {"system/cpu_seconds": times.user + times.system, "system/memory_gib": memory}
        self._log_points(summary, max((step for _, step in self._points), default=0))
        if status == "FINISHED":
            self._first_finish = self._first_finish or _now()
        self._append("status", status=status, began=self._began, first=self._first_finish)
        self.flush()
        os.close(self._descriptor)

    def _append(self, kind: str, **content: Any) -> None:
        self._buffer.append({"kind": kind, "at": _now(), **content})

    def _log_points(self, values: Mapping[str, float], step: int) -> None:
        new: dict[str, float] = {}
        for name, value in values.items():
            assert _NAME.fullmatch(name), f"metric name {name!r}"
            recorded = self._points.get((name, step))
            if recorded is None or not (self._replaying or _equal(recorded, value)):
                new[name] = self._points[name, step] = float(value)
        if new:
            self._append("metrics", step=step, values=new)

    def _log_texts(self, kind: str, values: Mapping[str, str]) -> None:
        new: dict[str, str] = {}
        for name, value in values.items():
            assert _NAME.fullmatch(name), f"{kind} name {name!r}"
            recorded = self._texts.get((kind, name))
            if recorded is None or (kind == "tags" and recorded != value):
                new[name] = self._texts[kind, name] = value
        if new:
            self._append(kind, values=new)

    def _load_recorded(self) -> None:
        """Read the metrics, params, tags and statuses that earlier attempts of the job recorded."""
        attempts, status = 0, None
        for record in read_records(self._state)[0]:
            kind = record["kind"]
            if kind == "metrics":
                step = record["step"]
                self._points.update({(k, step): v for k, v in record["values"].items()})
            elif kind in ("params", "tags"):
                self._texts.update({(kind, k): v for k, v in record["values"].items()})
            elif kind == "status":
                status = record["status"]
                attempts += (status == "RUNNING") - (status == "FINISHED")
                if status == "FINISHED":
                    self._first_finish = self._first_finish or record["at"]
        if attempts and status != "FINISHED":
            self.set_tags({"interruptions": attempts})

    def _system_load(self) -> dict[str, float]:
        self._last_system = time.monotonic()
        memory = self._process.memory_info().rss / 2**30
        load = {"system/cpu_percent": self._process.cpu_percent(), "system/memory_gib": memory}
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            load["system/gpu_memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
        return load


Tracker = RunTracker | NullTracker
"""Tracker of a job, which does nothing if tracking is off."""


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[_OTHER_CHARACTERS.sub("_", f"{prefix}{key}")] = str(value)
    return flat


def _equal(first: float, second: float) -> bool:
    return first == second or (math.isnan(first) and math.isnan(second))


def _now() -> int:
    """Return the current time in milliseconds since 1970, the unit of MLflow."""
    return time.time_ns() // 1_000_000
