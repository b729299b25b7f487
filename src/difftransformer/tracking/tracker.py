"""What a job reports to: it appends to the job's history, or does nothing where tracking is off."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from difftransformer.machine.locks import wait_for_lock
from difftransformer.provenance.atomic import link
from difftransformer.tracking.history import (
    ARTIFACTS,
    HISTORY_FILE,
    TERMINAL,
    Record,
    read_records,
    whole_size,
)

_SIGNS = r"\w\-./: "
_NAME, _FOREIGN = re.compile(rf"[{_SIGNS}]{{1,250}}"), re.compile(rf"[^{_SIGNS}]")

logger = logging.getLogger(__name__)


class NullTracker:
    """Tracking switched off: the methods of `RunTracker`, doing nothing."""

    def _nothing(self, *_args: Any, **_named: Any) -> None:
        """Do nothing."""

    log_params = log_metrics = log_artifact = set_tags = rewind = flush = close = _nothing


class RunTracker:
    """Appends to the history in ``state``, continuing the one that is there.

    No method fails or waits because of a store.

    Args:
        state: Folder of this job and fingerprint alone.
        stage: Name of the experiment.
        name: The job among all of its stage, without its fingerprint.
        job_id: Id of the job.
        on_flush: Called when points are on the disk.
        flush_every: Seconds between two writes of points.
        system_every: Seconds between two points of the process's load.
    """

    def __init__(
        self,
        state: Path,
        *,
        stage: str,
        name: str,
        job_id: str,
        on_flush: Callable[[], None] = lambda: None,
        flush_every: float = 30.0,
        system_every: float = 10.0,
    ) -> None:
        assert _NAME.fullmatch(stage) and _NAME.fullmatch(name), (stage, name)
        self._state, self._on_flush = state, on_flush
        self._flush_every, self._system_every = flush_every, system_every
        state.mkdir(parents=True, exist_ok=True)
        path = state / HISTORY_FILE
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        wait_for_lock(self._descriptor)
        self._size = whole_size(state)  # a line torn by a kill goes with the next write
        self._buffer: list[Record] = []
        self._points: dict[tuple[str, int], float] = {}
        self._known: dict[tuple[str, str], str] = {}
        self._replaying, self._began = False, _now()
        self._first_finish: int | None = None
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first call has nothing to compare with
        self._last_system = self._last_flush = time.monotonic()
        if self._size == 0:
            job = {"stage": stage, "name": name, "job_id": job_id, "spool": uuid.uuid4().hex}
            self._buffer.append({"kind": "job", **job, "at": self._began})
        self._recall()
        self._append("status", status="RUNNING")

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Record settings; nested names are dotted; the first value of a name stays."""
        self._log_texts("params", _flat(params))

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Label the run; the last value of a name stays."""
        self._log_texts("tags", {key: str(value) for key, value in tags.items()})

    def log_metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Record points of curves at ``step``; now and then all so far are written."""
        if time.monotonic() - self._last_system >= self._system_every:
            values = {**values, **self._system_load()}
        self._log_points(values, step)
        if time.monotonic() - self._last_flush >= self._flush_every:
            self.flush()

    def log_artifact(self, path: Path) -> None:
        """Keep a small file for the store as it is now.

        Before it is sent the workflow may have moved it into object storage, or made it anew.
        """
        try:
            link(path, self._state / ARTIFACTS / path.name)
        except OSError as error:
            logger.warning("tracking: artifact %s is not kept (%s)", path, error.strerror)
            return
        self._append("artifact", path=f"{ARTIFACTS}/{path.name}")

    def rewind(self, step: int) -> None:
        """Resume after ``step``, 0 for the start: points of later steps that are known stay.

        They are made again, some with another speed, and would be points of their own.
        """
        self._replaying = True
        self._points = {key: value for key, value in self._points.items() if key[1] > step}

    def flush(self) -> None:
        """Write everything so far; before a checkpoint, not after it."""
        self._last_flush = time.monotonic()
        if self._write():
            self._on_flush()

    def close(self, status: str) -> None:
        """End with FINISHED, FAILED or KILLED; what cannot be written now is lost."""
        assert status in TERMINAL, status
        times, memory = self._process.cpu_times(), self._process.memory_info().rss / 2**30
        summary = {"system/cpu_seconds": times.user + times.system, "system/memory_gib": memory}
        self._log_points(summary, max((step for _, step in self._points), default=0))
        if status == "FINISHED":
            self._first_finish = self._first_finish or _now()
        self._append("status", status=status, began=self._began, first=self._first_finish)
        self._write()
        os.close(self._descriptor)

    def _append(self, kind: str, **content: Any) -> None:
        self._buffer.append({"kind": kind, "at": _now(), **content})

    def _write(self) -> bool:
        """Write and fsync what is buffered; True when it is on the disk.

        If the disk refuses, the job goes on; the records stay in memory and come first next time.
        """
        if not self._buffer:
            return True
        lines = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in self._buffer)
        left = data = lines.encode()
        try:
            os.ftruncate(self._descriptor, self._size)
            while left:
                left = left[os.write(self._descriptor, left) :]
            os.fsync(self._descriptor)
        except OSError as error:
            with suppress(OSError):  # half a line would count as not sent
                os.ftruncate(self._descriptor, self._size)
            path = self._state / HISTORY_FILE
            logger.warning("tracking: cannot write %s (%s); kept in memory", path, error)
            return False
        self._size += len(data)
        self._buffer.clear()
        return True

    def _log_points(self, values: Mapping[str, float], step: int) -> None:
        fresh: dict[str, float] = {}
        for name, value in values.items():
            assert _NAME.fullmatch(name), f"metric name {name!r}"
            known = self._points.get((name, step))
            if known is None or not (self._replaying or _same(known, value)):
                fresh[name] = self._points[name, step] = float(value)
        if fresh:
            self._append("metrics", step=step, values=fresh)

    def _log_texts(self, kind: str, values: Mapping[str, str]) -> None:
        fresh: dict[str, str] = {}
        for name, value in values.items():
            assert _NAME.fullmatch(name), f"{kind} name {name!r}"
            known = self._known.get((kind, name))
            if known is None or (kind == "tags" and known != value):
                fresh[name] = self._known[kind, name] = value
        if fresh:
            self._append(kind, values=fresh)

    def _recall(self) -> None:
        """Take over what earlier attempts of the same job left."""
        attempts, status = 0, None
        for record in read_records(self._state)[0]:
            kind = record["kind"]
            if kind == "metrics":
                step = record["step"]
                self._points.update({(k, step): v for k, v in record["values"].items()})
            elif kind in ("params", "tags"):
                self._known.update({(kind, k): v for k, v in record["values"].items()})
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
"""Where a job reports to."""


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[_FOREIGN.sub("_", f"{prefix}{key}")] = str(value)
    return flat


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _now() -> int:
    """Milliseconds since 1970, the unit of MLflow."""
    return time.time_ns() // 1_000_000
