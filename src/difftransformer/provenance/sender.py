"""The background thread that sends the journal of a long job while it runs."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from difftransformer.provenance.secrets import masked
from difftransformer.provenance.spool import JOURNAL, Sent

if TYPE_CHECKING:
    from difftransformer.provenance.mlflow_sink import MlflowSink

_LONGEST_PAUSE = 300.0  # seconds between attempts while a store is down

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Delivery:
    """When to send, in seconds, and the results folder that the store belongs to."""

    live_after: float = 900.0  # 4-5 s of import and the wait at the end stay below 1% of the time
    live_every: float = 30.0
    close_wait: float = 3.0
    system_every: float = 10.0
    root: Path = Path("results")


class Sender:
    """Sends what is on disk, from ``live_after`` seconds of life on, every ``live_every`` seconds.

    The thread, and with it the import of mlflow, starts at the first `notify` after
    ``live_after``. It is a daemon: it never keeps a finished job alive.
    """

    def __init__(self, state: Path, uri: str, delivery: Delivery) -> None:
        self._state, self._uri, self._root = state, uri, delivery.root
        self._live_every = delivery.live_every
        self._starts_at = time.monotonic() + delivery.live_after
        self._wake, self._ending = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def notify(self) -> None:
        """Tell that there is more on disk."""
        if self._thread is None:
            if time.monotonic() < self._starts_at:
                return
            self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
            self._thread.start()
        self._wake.set()

    def finish(self, patience: float) -> None:
        """Send the rest for at most ``patience`` seconds; a job that never sent leaves it all."""
        if self._thread is None:
            return
        self._ending.set()
        self._wake.set()
        self._thread.join(patience)
        size = (self._state / JOURNAL).stat().st_size
        if Sent.load(self._state, self._uri).offset < size:
            logger.warning(
                "tracking: the store was not reached in time; %s keeps what is left: send it with "
                "`difftransformer sync_tracking --results %s`",
                self._state / JOURNAL,
                self._root,
            )

    def _run(self) -> None:
        sink: MlflowSink | None = None
        pause = self._live_every
        while True:
            self._wake.wait()
            self._wake.clear()
            last = self._ending.is_set()
            try:
                sink = sink or _open(self._uri, self._root)
                sink.send(self._state)
                pause = self._live_every
            except Exception as error:  # whatever a store does, the job goes on
                logger.warning("tracking: not sent, will try again (%s)", one_line(error))
                pause = min(2 * pause, _LONGEST_PAUSE)
                if last:
                    return
                self._wake.set()
            if last:
                return
            self._ending.wait(pause)


def _open(uri: str, root: Path) -> MlflowSink:
    from difftransformer.provenance.mlflow_sink import MlflowSink

    return MlflowSink(uri, root)


def one_line(error: BaseException) -> str:
    """Give the kind of an error and the start of its text."""
    text = masked(" ".join(str(error).split()))
    return f"{type(error).__name__}: {text[:160]}"
