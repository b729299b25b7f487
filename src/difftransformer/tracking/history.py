"""The history of a job: an append-only log of what it tracks, which `sync` sends to MLflow.

The job writes only to disk, so no store can slow or stop it. The first line of ``tracking.jsonl``
in its state folder identifies the run; the others are params, tags, metric points, artifacts and
statuses. The job locks the file while it runs. Next to it are copies of the artifacts, and for each
store the position up to which the history was sent (`Sent`). This module imports no mlflow.

A point has the time of its creation, so MLflow stores it once even if it is sent twice. A training
writes its points every half minute and *before* each checkpoint. When it resumes, it repeats the
points after its checkpoint; the history keeps the first of each.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difftransformer.machine.locks import try_lock
from difftransformer.provenance.atomic import write_text

HISTORY_FILE = "tracking.jsonl"
SENT = "tracking.sent-*.json"
"""Pattern of the names of files with the position sent to each store (`Sent`)."""
ARTIFACTS = "tracked"
"""Folder with the copies of the artifacts."""
COPY = "difftransformer.copy"
"""Tag of a training whose checkpoints are copied: a hash of the URL of the copies (`hashed`).

Machines without a common disk share only this URL. Two `file:` folders with the same path on
different disks cannot be distinguished.
"""
KEY_METRIC = "difftransformer.key_metric"
"""Tag of a run with the name of the metric that the run's experiment shows as a column."""
HISTORY_ID = "spool"
"""Key of the history's id in the first line of a history."""
TERMINAL = frozenset({"FINISHED", "FAILED", "KILLED"})

logger = logging.getLogger(__name__)
Record = dict[str, Any]
_DAMAGED: Record = {"kind": "damaged"}


@dataclass(frozen=True)
class Sent:
    """Position up to which a history was sent to a store, and whether the run has ended there."""

    run_id: str | None = None
    offset: int = 0
    ended: bool = False

    @classmethod
    def load(cls, state: Path, store: str) -> Sent:
        """Return the position for a store; the start of the history if none can be read.

        Args:
            state: State folder of the job, with its history.
            store: Address of the store.
        """
        try:
            return cls(**json.loads(_sent_file(state, store).read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return cls()  # sending again is harmless: the store has no duplicates

    def save(self, state: Path, store: str) -> None:
        """Write the position for a store to a file atomically.

        Args:
            state: State folder of the job, with its history.
            store: Address of the store.
        """
        write_text(_sent_file(state, store), json.dumps(vars(self)) + "\n")

    def is_behind(self, state: Path) -> bool:
        """Return whether the store lacks records of the history, or the end of a killed job."""
        size = complete_size(state)
        return self.offset < size or (size > 0 and not (self.ended or is_running(state)))


def _sent_file(state: Path, store: str) -> Path:
    return state / SENT.replace("*", hashed(store))


def read_records(state: Path, offset: int = 0) -> tuple[list[Record], int]:
    """Return the records of a history from byte ``offset`` on, and the offset after them.

    An incomplete last line is still being written, and is not returned. A damaged line (a
    disk fault) is reported and skipped.
    """
    records = list[Record]()
    with (state / HISTORY_FILE).open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                break
            offset += len(line)
            records.append(_parsed(line))
            if records[-1] == _DAMAGED:
                logger.warning("tracking: %s: damaged line before byte %d", file.name, offset)
    return records, offset


def header(state: Path) -> Record:
    """Return the first record of a history, which identifies the run; {} if it is not complete."""
    with (state / HISTORY_FILE).open("rb") as file:
        line = file.readline()
    return _parsed(line) if line.endswith(b"\n") else {}


def _parsed(line: bytes) -> Record:
    try:
        record: Record = json.loads(line)
    except ValueError:
        return _DAMAGED
    return record


def complete_size(state: Path) -> int:
    """Return the size of a history's complete lines in bytes; a kill may truncate the last line."""
    return (state / HISTORY_FILE).read_bytes().rfind(b"\n") + 1


def is_running(state: Path) -> bool:
    """Return whether the job that writes the history in ``state`` is still running."""
    with (state / HISTORY_FILE).open("r+b") as file:  # NFS locks no file that is only read
        return not try_lock(file.fileno())


def hashed(address: str) -> str:
    """Return a short SHA-256 of an address, which does not reveal any secret in the address."""
    return hashlib.sha256(address.encode()).hexdigest()[:16]
