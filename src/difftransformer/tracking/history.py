"""The history of a job: what it tracks, written to disk first, so no store can slow or stop it.

``tracking.jsonl`` in the state folder of a job is append-only. Its first line identifies the run,
the others are params, tags, metric points, artifacts and statuses. The job holds a lock on the file
while it runs, so other processes know. Next to it are copies of the artifacts, and for each store
the position up to which the history was sent (`Sent`). `sync` sends it; this module imports no
mlflow.

A point has the time of its creation, so MLflow stores it once even if it is sent twice. A training
writes its points every half minute and *before* each checkpoint. When it resumes, it repeats the
points after its checkpoint; the history keeps the first of each.
"""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difftransformer.machine.locks import try_lock
from difftransformer.provenance.atomic import write_text

HISTORY_FILE = "tracking.jsonl"
SENT = "tracking.sent.json"
ARTIFACTS = "tracked"
"""Folder with the copies of the artifacts."""
COPY = "difftransformer.copy"
"""Tag of a training whose checkpoints are copied: a hash of the target's URL (`hashed`). It is all
that machines without a common disk share; `file:` folders of one name on two disks look the same.
"""
KEY_METRIC = "difftransformer.key_metric"
"""Tag of a run: the metric that its experiment shows as a column."""
HISTORY_ID = "spool"
"""Key of the id in the first line of a history; the name is that of earlier versions' files."""
TERMINAL = frozenset({"FINISHED", "FAILED", "KILLED"})

logger = logging.getLogger(__name__)
Record = dict[str, Any]


@dataclass(frozen=True)
class Sent:
    """Position up to which a history was sent to one store, and whether its run has ended there."""

    run_id: str | None = None
    offset: int = 0
    ended: bool = False

    @classmethod
    def load(cls, state: Path, store: str) -> Sent:
        """Read the position for ``store``; the start if it is missing or unreadable."""
        entry = _load_sent(state).get(hashed(store))
        return cls(**entry) if entry else cls()

    def save(self, state: Path, store: str) -> None:
        """Write the position for ``store`` atomically, keeping those of other stores."""
        entries = _load_sent(state) | {hashed(store): vars(self)}
        write_text(state / SENT, json.dumps(entries, indent=1, sort_keys=True) + "\n")


def _load_sent(state: Path) -> dict[str, Any]:
    try:
        entries = json.loads((state / SENT).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}  # sending again from the start is harmless: the store keeps no point twice
    return entries if isinstance(entries, dict) else {}


def read_records(state: Path, offset: int = 0) -> tuple[list[Record], int]:
    """Return the records of a history from byte ``offset`` on, and the offset after them.

    A last line without its end is still being written and is left for later. A damaged line (a
    disk fault) is reported and skipped.
    """
    records = list[Record]()
    with (state / HISTORY_FILE).open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                break
            offset += len(line)
            try:
                records.append(json.loads(line))
            except ValueError:
                logger.warning("tracking: %s: damaged line before byte %d", file.name, offset)
                records.append({"kind": "damaged"})
    return records, offset


def header(state: Path) -> Record:
    """Return the first record of a history, which identifies the run; {} if it is not written."""
    with (state / HISTORY_FILE).open("rb") as file, suppress(ValueError):
        line = file.readline()
        first: Record = json.loads(line) if line.endswith(b"\n") else {}
        return first
    return {"kind": "damaged"}


def whole_size(state: Path) -> int:
    """Return the bytes of a history's complete lines: a kill may have cut the last one."""
    return (state / HISTORY_FILE).read_bytes().rfind(b"\n") + 1


def was_killed(state: Path) -> bool:
    """Return whether the job of a history ended without recording its status."""
    records, _ = read_records(state)
    statuses = [record["status"] for record in records if record["kind"] == "status"]
    return statuses[-1:] == ["RUNNING"] and not is_written(state)


def is_written(state: Path) -> bool:
    """Return whether a running process writes the history."""
    with (state / HISTORY_FILE).open("r+b") as file:  # NFS locks no file that is only read
        return not try_lock(file.fileno())


def hashed(address: str) -> str:
    """Return a hash of an address, which reveals no secret in it."""
    return hashlib.sha256(address.encode()).hexdigest()[:16]
