"""Sending of histories to MLflow: while long jobs run, and for other jobs after the last job.

`difftransformer sync-tracking` runs at the end of a workflow, or by hand. One process sends
everything, since importing mlflow takes 4 s of CPU, too much for a job of seconds. A thread of each
job starts sending after ``live_after`` seconds, or at the job's end if the disk is lost with
the job. Records that cannot be sent are sent the next time.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from difftransformer.extras import install_hint
from difftransformer.provenance.masking import mask_addresses, mask_secrets
from difftransformer.tracking.address import ROOT, is_disk_ephemeral, resolve_uri, sqlite_file
from difftransformer.tracking.history import HISTORY_FILE, Sent, complete_size

if TYPE_CHECKING:
    from difftransformer.tracking.mlflow_runs import MlflowRuns

_MAX_PAUSE = 300.0  # seconds between attempts while a store is down
_MAX_WAIT = 60.0  # seconds that a job waits at its end if its disk is lost with it
_LOG_INTERVAL = 15.0
_MAX_FAILURES = 3  # consecutive failures after which the store counts as down
_CHECK_LOGIN = (
    "check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or PGPASSWORD of a database"
)
_REASONS = {
    r"password authentication failed|no password supplied|Access denied for user|error code 401": (
        f"user name or password are refused; {_CHECK_LOGIN}"
    ),
    r"error code 403": "this user has no write permission; ask for MANAGE on its experiments",
    r'database "[^"]*" does not exist|Unknown database': (
        "the database does not exist; create it (createdb) or change the address"
    ),
    r"no pg_hba.conf entry": "the database refuses this host; add it to pg_hba.conf",
    r"file is not a database|database disk image is malformed": (
        "the file is damaged; delete it, and all histories are sent to a new one"
    ),
    r"Could not parse SQLAlchemy URL|invalid literal for int|Can't load plugin": (
        "not an address of a database; write postgresql://<user>@<host>:<port>/<database>"
    ),
    "Connection refused": "nothing listens at this address",
    r"could not translate host name|Failed to resolve|Name or service not known": ("unknown host"),
    r"too many 50\d error responses": "internal error of the server, perhaps of its database",
    r"timed out|timeout expired": "no answer in time",
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SyncConfig:
    """Times in seconds at which a job writes and sends its metrics, and the results folder."""

    live_after: float = 900.0  # importing mlflow and waiting at the end take below 1% of this
    live_every: float = 30.0
    close_wait: float = 3.0
    root: Path = ROOT


@contextmanager
def live_sync(state: Path, uri: str, config: SyncConfig) -> Iterator[None]:
    """Context manager: send the history of a long job from a daemon thread while the block runs.

    The remaining records are sent at the end within a limited time. A job shorter than
    ``config.live_after`` leaves sending to `sync-tracking`.

    Args:
        state: State folder of the job, with its history.
        uri: Address of the store.
        config: Times of sending, and the results folder.
    """
    closed, started = threading.Event(), time.monotonic()
    arguments = (closed, state, uri, config)
    thread = threading.Thread(target=send_live, args=arguments, name="tracking", daemon=True)
    thread.start()
    try:
        yield
    finally:
        closed.set()
        if is_disk_ephemeral() or time.monotonic() - started >= config.live_after:
            thread.join(_MAX_WAIT if is_disk_ephemeral() else config.close_wait)
            if Sent.load(state, uri).offset < complete_size(state):
                logger.warning(
                    f"tracking: the store was not reached in time; {state / HISTORY_FILE} has "
                    "the unsent records: send them with `difftransformer sync-tracking --results "
                    f"{config.root}`"
                )


def send_live(closed: threading.Event, state: Path, uri: str, config: SyncConfig) -> None:
    """Send the history in ``state`` repeatedly until the event ``closed`` is set, then once more.

    A job shorter than ``config.live_after`` sends nothing, unless its disk is lost with it.
    """
    last = closed.wait(config.live_after)
    if last and not is_disk_ephemeral():
        return
    runs: MlflowRuns | None = None
    pause = config.live_every
    while True:
        try:
            from difftransformer.tracking.mlflow_runs import MlflowRuns

            runs = runs or MlflowRuns(uri, config.root)
            runs.send(state)
            pause = config.live_every
            if last:
                runs.tidy()
        except Exception as error:  # no error of a store stops the job
            logger.warning("tracking: not sent, will try again (%s)", reason_of(error))
            pause = min(2 * pause, _MAX_PAUSE)
        if last:
            return
        last = closed.wait(pause)


@dataclass(frozen=True)
class SyncReport:
    """State folders of the runs that were not sent, and the reason; "" if there was no error."""

    unsent: tuple[Path, ...] = ()
    reason: str = ""


def sync_tracking(root: Path = ROOT, uri: str | None = None) -> SyncReport:
    """Send the unsent records of every history below ``root``, and end the runs of killed jobs.

    With nothing to send, the connection to a server or database is tested. For a SQLite file,
    mlflow is then not imported.

    Args:
        root: The results folder.
        uri: Address of the store; None: the default of `address.resolve_uri`.
    """
    store = resolve_uri(uri, root)
    if store is None:
        return SyncReport()
    file = sqlite_file(store)
    is_new = file is not None and not file.exists()  # then the positions belong to a deleted file
    states = sorted(path.parent for path in root.rglob(HISTORY_FILE))
    unsent = [state for state in states if is_new or Sent.load(state, store).is_behind(state)]
    number, reason, failures, logged = len(unsent), "", 0, time.monotonic()
    if not unsent and file:
        return SyncReport()
    if unsent:
        logger.info("tracking: sending %d runs to %s", number, mask_addresses(store))
    try:
        from difftransformer.tracking.mlflow_runs import MlflowRuns

        runs = MlflowRuns(store, root)
        for state in tuple(unsent):
            try:
                runs.send(state)
                unsent.remove(state)
                failures = 0
            except Exception as error:  # sending one run failed; the next may succeed
                reason, failures = reason_of(error), failures + 1
                if failures == _MAX_FAILURES:
                    break
            if time.monotonic() - logged >= _LOG_INTERVAL:
                logger.info("tracking: %d of %d runs left to send", len(unsent), number)
                logged = time.monotonic()
        else:
            runs.tidy()
    except Exception as error:
        reason = reason or reason_of(error)
    if unsent:
        logger.warning(
            f"tracking: {len(unsent)} of {number} runs are not sent ({reason}); run "
            f"`difftransformer sync-tracking --results {root}` when the store is back"
        )
    elif reason:
        logger.warning(f"tracking: {mask_addresses(store)} does not answer ({reason})")
    return SyncReport(tuple(unsent), reason)


def reason_of(error: Exception) -> str:
    """Return the reason for an error of a store in one line, with advice for common errors."""
    if isinstance(error, ModuleNotFoundError):
        return install_hint(error) or f"{error.name} is not installed"
    reasons = (reason for pattern, reason in _REASONS.items() if re.search(pattern, str(error)))
    text = mask_secrets(
        " ".join(str(error).split())
    )  # before it is cut, which could split a secret
    return next(reasons, "") or f"{type(error).__name__}: {text[:160]}"
