"""Send histories to MLflow: of long jobs while they run, of all others after the last job.

`difftransformer sync_tracking` runs at the end of a workflow, or by hand: one process sends
everything with one import of mlflow (4 s of CPU, too much for a job of seconds). A job that has run
for ``live_after`` seconds starts a thread that sends; where the disk is lost with the job, every
job sends at its end. What could not be sent is sent the next time.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from difftransformer.extras import how_to_get
from difftransformer.provenance.masking import displayed
from difftransformer.provenance.reporting import one_line
from difftransformer.tracking.address import ROOT, disk_passes, resolve_uri, sqlite_file
from difftransformer.tracking.history import HISTORY_FILE, Sent, header, is_written, whole_size

if TYPE_CHECKING:
    from difftransformer.tracking.mlflow_runs import MlflowRuns

_LONGEST_PAUSE = 300.0  # seconds between attempts while a store is down
_LONGEST_WAIT = 60.0  # seconds that a job waits at its end if its disk is lost with it
_SECONDS_BETWEEN_LINES = 15.0
_MOST_FAILURES = 3  # in a row; then the store counts as down and the rest is not tried
_CHECK_LOGIN = (
    "check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or PGPASSWORD of a database"
)
_REASONS = {
    r"password authentication failed|no password supplied|Access denied for user|error code 401": (
        f"user name or password are refused; {_CHECK_LOGIN}"
    ),
    r"error code 403": "this user may not write there; ask for MANAGE on its experiments",
    r'database "[^"]*" does not exist|Unknown database': (
        "there is no such database; make it (createdb) or change the address"
    ),
    r"no pg_hba.conf entry": "the database admits nobody from here; add this host to pg_hba.conf",
    r"file is not a database|database disk image is malformed": (
        "the file is damaged; remove it, and all that is tracked here goes into a new one"
    ),
    r"Could not parse SQLAlchemy URL|invalid literal for int|Can't load plugin": (
        "no address of a database; write postgresql://<user>@<host>:<port>/<database>"
    ),
    "Connection refused": "nothing listens there",
    r"could not translate host name|Failed to resolve|Name or service not known": (
        "its host is not known"
    ),
    r"too many 50\d error responses": "the server has an error of its own, its database perhaps",
    r"timed out|timeout expired": "no answer in time",
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SyncConfig:
    """Times in seconds at which a job writes and sends its points, and the results folder."""

    live_after: float = 900.0  # 4-5 s of import and the wait at the end stay below 1% of the time
    live_every: float = 30.0
    close_wait: float = 3.0
    system_every: float = 10.0
    root: Path = ROOT


class LiveSync:
    """Sends the history in ``state`` while its job runs, from a daemon thread."""

    def __init__(self, state: Path, uri: str, config: SyncConfig) -> None:
        self._state, self._uri, self._config = state, uri, config
        self._starts_at = time.monotonic() + config.live_after
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start_when_due(self) -> None:
        """Start the thread, and with it the import of mlflow, if the job has run long enough."""
        if self._thread is None and time.monotonic() >= self._starts_at:
            self._start()

    def finish(self) -> None:
        """Send the rest within a limited time; a short job leaves it to `sync_tracking`."""
        if self._thread is None and not disk_passes():
            return
        self._closed.set()
        thread = self._thread or self._start()
        thread.join(_LONGEST_WAIT if disk_passes() else self._config.close_wait)
        if Sent.load(self._state, self._uri).offset < whole_size(self._state):
            logger.warning(
                f"tracking: the store was not reached in time; {self._state / HISTORY_FILE} keeps "
                "the rest: send it with `difftransformer sync_tracking --results "
                f"{self._config.root}`"
            )

    def _start(self) -> threading.Thread:
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()
        return self._thread

    def _run(self) -> None:
        runs: MlflowRuns | None = None
        pause, last = 0.0, False
        while not last:
            last = self._closed.wait(pause)
            try:
                from difftransformer.tracking.mlflow_runs import MlflowRuns

                runs = runs or MlflowRuns(self._uri, self._config.root)
                runs.send(self._state)
                pause = self._config.live_every
            except Exception as error:  # no error of a store stops the job
                logger.warning("tracking: not sent, will try again (%s)", reason_of(error))
                pause = min(2 * max(pause, self._config.live_every), _LONGEST_PAUSE)


@dataclass(frozen=True)
class SyncReport:
    """State folders of the runs that could not be sent, and the reason, "" without an error."""

    unsent: tuple[Path, ...] = ()
    reason: str = ""


def sync_tracking(root: Path = ROOT, uri: str | None = None) -> SyncReport:
    """Send the unsent records of every history below ``root``, oldest job first.

    Also ends the runs of this folder whose job was killed. With nothing to send, a connection to a
    server or database is tested; for a SQLite file mlflow is not imported.
    """
    store = resolve_uri(uri, root)
    if store is None:
        return SyncReport()
    pending = _pending(root, store)
    if not pending and sqlite_file(store):
        return SyncReport()
    if pending:
        logger.info("tracking: sending %d runs to %s", len(pending), displayed(store))
    report = _send_all(pending, store, root)
    if report.unsent:
        logger.warning(
            f"tracking: {len(report.unsent)} of {len(pending)} runs are not sent "
            f"({report.reason}); run `difftransformer sync_tracking --results {root}` when the "
            "store is back"
        )
    elif report.reason:
        logger.warning(f"tracking: {displayed(store)} does not answer ({report.reason})")
    return report


def reason_of(error: Exception) -> str:
    """Return one line with the reason for an error of a store, and the cure for common ones."""
    if isinstance(error, ModuleNotFoundError):
        return how_to_get(error) or f"{error.name} is not installed"
    reasons = (reason for pattern, reason in _REASONS.items() if re.search(pattern, str(error)))
    return next(reasons, "") or one_line(error)


def _send_all(pending: list[Path], store: str, root: Path) -> SyncReport:
    try:
        from difftransformer.tracking.mlflow_runs import MlflowRuns

        runs = MlflowRuns(store, root)
    except Exception as error:
        return SyncReport(tuple(pending), reason_of(error))
    sent, unsent = list[Path](), list[Path]()
    reason, failures, logged = "", 0, time.monotonic()
    for number, state in enumerate(pending):
        if time.monotonic() - logged >= _SECONDS_BETWEEN_LINES:
            logger.info("tracking: %d of %d runs sent", number, len(pending))
            logged = time.monotonic()
        if failures < _MOST_FAILURES:
            try:
                runs.send(state)
                sent.append(state)
                failures = 0
                continue
            except Exception as error:  # of one run; the next may succeed
                reason, failures = reason_of(error), failures + 1
        unsent.append(state)
    try:
        runs.end_killed(sent)
        if sent:
            runs.mark_shown()
    except Exception as error:  # repeated when something else is sent
        reason = reason or reason_of(error)
    return SyncReport(tuple(unsent), reason)


def _pending(root: Path, store: str) -> list[Path]:
    """Return the state folders with unsent records or a killed job, oldest job first."""
    file = sqlite_file(store)
    deleted = file is not None and not file.exists()  # with all runs, so all are sent again
    states = [path.parent for path in root.rglob(HISTORY_FILE)]
    pending = [state for state in states if deleted or _is_pending(state, store)]
    return sorted(pending, key=lambda state: (header(state).get("at", 0), str(state)))


def _is_pending(state: Path, store: str) -> bool:
    sent = Sent.load(state, store)
    return sent.offset < whole_size(state) or not (sent.ended or is_written(state))
