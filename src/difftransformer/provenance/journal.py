"""The tracker that writes a job's journal, and the background thread that sends it meanwhile."""

from __future__ import annotations

import logging
import math
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from difftransformer.provenance.atomic import link
from difftransformer.provenance.refusals import refusal_of
from difftransformer.provenance.spool import ARTIFACTS, JOURNAL, TERMINAL, Record, Sent, Spool

if TYPE_CHECKING:
    from difftransformer.provenance.mlflow_sink import MlflowSink

_SIGNS = r"\w\-./: "
_NAME, _FOREIGN = re.compile(rf"[{_SIGNS}]{{1,250}}"), re.compile(rf"[^{_SIGNS}]")
_T = TypeVar("_T")
_LONGEST_PAUSE = 300.0  # seconds between attempts while a store is down
_LONGEST_WAIT = 60.0  # seconds that a job waits at its end where nothing is sent after it

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Delivery:
    """When to send, in seconds, and the results folder that the store belongs to."""

    live_after: float = 900.0  # 4-5 s of import and the wait at the end stay below 1% of the time
    live_every: float = 30.0
    close_wait: float = 3.0
    system_every: float = 10.0
    root: Path = Path("results")
    leaves_rest: bool = True
    """Whether what was not sent stays on the disk, for `sync_tracking`."""

    @classmethod
    def here(cls, root: Path) -> Delivery:
        """Return when to send on this machine: before the end, where its disk goes with the job."""
        if disk_passes():
            return cls(close_wait=_LONGEST_WAIT, root=root, leaves_rest=False)
        return cls(root=root)


def disk_passes() -> bool:
    """Whether the disk goes with the job, as that of a pod does: envs/Containerfile says so."""
    return os.environ.get("DIFFTRANSFORMER_DISK") == "passing"


class Sender:
    """Sends what is on disk, from ``live_after`` seconds of life on, every ``live_every`` seconds.

    The thread, and with it the import of mlflow, starts at the first `notify` after
    ``live_after``. It is a daemon: it never keeps a finished job alive.
    """

    def __init__(self, state: Path, uri: str, delivery: Delivery) -> None:
        self._state, self._uri, self._root = state, uri, delivery.root
        self._live_every, self._leaves_rest = delivery.live_every, delivery.leaves_rest
        self._starts_at = time.monotonic() + delivery.live_after
        self._wake, self._ending = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def notify(self) -> None:
        """Tell that there is more on disk."""
        if self._thread is None:
            if time.monotonic() < self._starts_at:
                return
            self._start()
        self._wake.set()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()

    def finish(self, patience: float) -> None:
        """Send the rest, for at most ``patience`` seconds; who never sent may leave it all."""
        if self._thread is None and self._leaves_rest:
            return
        self._ending.set()
        self._wake.set()
        if self._thread is None:
            self._start()
        assert self._thread is not None
        self._thread.join(patience)
        size = (self._state / JOURNAL).stat().st_size
        if Sent.load(self._state, self._uri).offset < size:
            logger.warning(
                f"tracking: the store was not reached in time; {self._state / JOURNAL} keeps what "
                f"is left: send it with `difftransformer sync_tracking --results {self._root}`"
            )

    def _run(self) -> None:
        sink: MlflowSink | None = None
        pause = self._live_every
        while True:
            self._wake.wait()
            self._wake.clear()
            last = self._ending.is_set()
            try:
                from difftransformer.provenance.mlflow_sink import MlflowSink

                sink = sink or MlflowSink(self._uri, self._root)
                sink.send(self._state)
                pause = self._live_every
            except Exception as error:  # whatever a store does, the job goes on
                reason = refusal_of(error).reason
                logger.warning("tracking: not sent, will try again (%s)", reason)
                pause = min(2 * pause, _LONGEST_PAUSE)
                self._wake.set()
            if last:
                return
            self._ending.wait(pause)


class SpoolTracker:
    """Writes into the journal in ``state``, continuing what is there already.

    No method fails or waits because of a store.
    """

    def __init__(
        self,
        state: Path,
        *,
        stage: str,
        name: str,
        job_id: str,
        sender: Sender | None = None,
        delivery: Delivery | None = None,
    ) -> None:
        assert _NAME.fullmatch(stage) and _NAME.fullmatch(name), (stage, name)
        self.job_id = job_id
        self._state, self._sender = state, sender
        self._delivery = delivery or Delivery()
        header = {"stage": stage, "name": name, "job_id": job_id, "spool": uuid.uuid4().hex}
        self._spool = Spool(state, header | {"at": _now()})
        self._points: dict[tuple[str, int], float] = {}
        self._known: dict[tuple[str, str], str] = {}
        self._replaying = False
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first call has nothing to compare with
        self._last_system = self._last_flush = time.monotonic()
        self._recall(self._spool.earlier)
        self._spool.append({"kind": "status", "status": "RUNNING", "at": _now()})

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Record settings; nested names are dotted; the first value of a name stays."""
        self._log_texts("params", _flat(params))

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Label the run; the last value of a name stays."""
        self._log_texts("tags", {key: str(value) for key, value in tags.items()})

    def log_metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Record points of curves at ``step``; now and then all so far go to the disk."""
        if time.monotonic() - self._last_system >= self._delivery.system_every:
            values = {**values, **self._system_load()}
        self._log_points(values, step)
        if time.monotonic() - self._last_flush >= self._delivery.live_every:
            self.flush()

    def log_artifact(self, path: Path) -> None:
        """Keep a small file for the store as it is now.

        Before it is sent the workflow may have moved it into object storage, or made it anew.
        """
        kept = self._state / ARTIFACTS / path.name
        try:
            link(path, kept)
        except OSError as error:
            logger.warning("tracking: artifact %s is not kept (%s)", path, error.strerror)
            return
        self._spool.append({"kind": "artifact", "path": f"{ARTIFACTS}/{path.name}"})

    def rewind(self, step: int) -> None:
        """Resume behind ``step``, 0 for the start: what the journal has of later steps it keeps.

        Their points come again, some with another speed, and would be points of their own.
        """
        self._replaying = True
        self._points = {key: value for key, value in self._points.items() if key[1] > step}

    def flush(self) -> None:
        """Bring everything so far to the disk; before a checkpoint, not after it."""
        self._last_flush = time.monotonic()
        if self._spool.flush() and self._sender is not None:
            self._sender.notify()

    def close(self, status: str) -> None:
        """End with FINISHED, FAILED or KILLED."""
        assert status in TERMINAL, status
        times, memory = self._process.cpu_times(), self._process.memory_info().rss / 2**30
        summary = {"system/cpu_seconds": times.user + times.system, "system/memory_gib": memory}
        self._log_points(summary, max((step for _, step in self._points), default=0))
        self._spool.append({"kind": "status", "status": status, "at": _now()})
        self._spool.flush()
        self._spool.close()
        if self._sender is not None:
            self._sender.finish(self._delivery.close_wait)

    def _log_points(self, values: Mapping[str, float], step: int) -> None:
        fresh: dict[str, float] = {}
        for name, value in values.items():
            assert _NAME.fullmatch(name), f"metric name {name!r}"
            known = self._points.get((name, step))
            if known is None or not (self._replaying or _same(known, value)):
                fresh[name] = float(value)
        self._points.update({(name, step): value for name, value in fresh.items()})
        for part in _parts(fresh):
            self._spool.append({"kind": "metrics", "step": step, "at": _now(), "values": part})

    def _log_texts(self, kind: str, values: Mapping[str, str]) -> None:
        fresh: dict[str, str] = {}
        for name, value in values.items():
            assert _NAME.fullmatch(name), f"{kind} name {name!r}"
            known = self._known.get((kind, name))
            if known is not None and kind == "params":
                if known != value:
                    logger.debug(f"tracking: {name} stays {known} in the same run, not {value}")
            elif known != value:
                fresh[name] = self._known[kind, name] = value
        for part in _parts(fresh):
            self._spool.append({"kind": kind, "values": part})

    def _recall(self, earlier: list[Record]) -> None:
        """Take over what an interrupted or finished attempt of the same job left."""
        attempts, status = 0, None
        for record in earlier:
            kind = record["kind"]
            if kind == "metrics":
                step = record["step"]
                self._points.update({(k, step): v for k, v in record["values"].items()})
            elif kind in ("params", "tags"):
                self._known.update({(kind, k): v for k, v in record["values"].items()})
            elif kind == "status":
                status = record["status"]
                attempts += (status == "RUNNING") - (status == "FINISHED")
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


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[_FOREIGN.sub("_", f"{prefix}{key}")] = str(value)
    return flat


def _parts(values: dict[str, _T]) -> Iterator[dict[str, _T]]:
    """Pieces small enough for one call to a store."""
    items = list(values.items())
    for start in range(0, len(items), 100):
        yield dict(items[start : start + 100])


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _now() -> int:
    """Milliseconds since 1970, the unit of MLflow."""
    return time.time_ns() // 1_000_000
