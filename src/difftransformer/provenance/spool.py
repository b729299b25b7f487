"""The local record of what a job tracks: a journal of JSON lines, written before anything is sent.

``tracking.jsonl`` lies in the state folder of a job and is only ever appended to. Its first line
says which job it is; after that there are params, tags, metric points, artifacts and the changes of
status. The job holds a lock on it for as long as it lives, which also tells everybody else whether
it does. Beside it, ``tracking.sent.json`` says for each store how far the journal was sent and
under which MLflow run; the folder ``tracked`` has its artifacts. Nothing here imports mlflow.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difftransformer.errors import UserError
from difftransformer.machine.locks import try_lock
from difftransformer.provenance.atomic import write_text

JOURNAL = "tracking.jsonl"
SENT = "tracking.sent.json"
ARTIFACTS = "tracked"
"""Folder of the files that go to the store with a journal, beside it."""
SENDING = "tracking.lock"
"""Held by one sender at a time: the job's own thread, or a later synchronisation."""
COPY = "difftransformer.copy"
"""Tag of a training whose checkpoints are copied: where to, as `address_key` names it. Machines
that share nothing else share that; two `file:` folders of one name on two disks look the same."""
KEY_METRIC = "difftransformer.key_metric"
"""Tag of a run: the metric that its experiment shows as a column."""
TERMINAL = frozenset({"FINISHED", "FAILED", "KILLED"})
_LOCK_PATIENCE = 5.0  # seconds; `is_written` takes the lock for a moment

logger = logging.getLogger(__name__)
Record = dict[str, Any]


class Spool:
    """The writer of one journal: buffers in memory, appends and fsyncs at `flush`.

    Raises:
        UserError: another process is writing this journal.
    """

    def __init__(self, state: Path, header: Record) -> None:
        state.mkdir(parents=True, exist_ok=True)
        self.path = state / JOURNAL
        self._buffer: list[Record] = []
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock()
        self._size = whole_size(state)  # a line torn by a kill goes with the next flush
        self.earlier = [record for record, _ in read_records(self.path)]
        if not self.earlier:
            self.append({"kind": "job", **header})

    def append(self, record: Record) -> None:
        """Keep a record in memory until the next `flush`."""
        self._buffer.append(record)

    def flush(self) -> bool:
        """Write what is buffered; True when it is on disk.

        A disk that refuses does not stop the job: the records stay in memory for the next time,
        and what is there of them goes first then.
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
            with suppress(OSError):  # half a line would count as what is not sent
                os.ftruncate(self._descriptor, self._size)
            logger.warning("tracking: cannot write %s (%s); kept in memory", self.path, error)
            return False
        self._size += len(data)
        self._buffer.clear()
        return True

    def close(self) -> None:
        """Give the journal free; what could not be written is lost."""
        os.close(self._descriptor)

    def _lock(self) -> None:
        deadline = time.monotonic() + _LOCK_PATIENCE
        while not try_lock(self._descriptor):
            if time.monotonic() > deadline:
                os.close(self._descriptor)
                raise UserError(
                    f"{self.path}: another process is running this job; wait for it or end it"
                )
            time.sleep(0.1)


@dataclass(frozen=True)
class Sent:
    """How far a journal was sent to one store, and whether its run was ended for a killed job."""

    run_id: str | None = None
    offset: int = 0
    ended: bool = False

    @classmethod
    def load(cls, state: Path, uri: str) -> Sent:
        """Read the position for ``uri``; the start when there is none or it is unreadable."""
        entry = _load_sent(state).get(address_key(uri))
        return cls(**entry) if entry else cls()

    def save(self, state: Path, uri: str) -> None:
        """Write the position for ``uri`` atomically, keeping those of other stores."""
        _save_sent(state, _load_sent(state) | {address_key(uri): vars(self)})


def read_records(path: Path, offset: int = 0) -> Iterator[tuple[Record, int]]:
    """Whole records from byte ``offset`` on, each with the offset behind it.

    A last line without its end is still being written and is left for later. A damaged line (a
    disk fault) is reported and passed over.
    """
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            try:
                record = json.loads(line)
            except ValueError:
                logger.warning("tracking: %s: damaged line before byte %d", path, offset)
                record = {"kind": "damaged"}
            yield record, offset


def whole_size(state: Path) -> int:
    """Bytes of a journal's whole lines: a kill may have torn the last one."""
    return (state / JOURNAL).read_bytes().rfind(b"\n") + 1


def statuses(state: Path) -> list[str]:
    """What a journal says of its job, in order."""
    records = (record for record, _ in read_records(state / JOURNAL))
    return [record["status"] for record in records if record["kind"] == "status"]


def first_finish(state: Path) -> int | None:
    """When the job of a journal finished for the first time, in milliseconds since 1970."""
    records = (record for record, _ in read_records(state / JOURNAL))
    return next((one["at"] for one in records if one.get("status") == "FINISHED"), None)


def last_start(state: Path, until: int) -> int:
    """When the attempt of a job that ended at ``until`` began, in milliseconds since 1970."""
    records = (record for record, _ in read_records(state / JOURNAL))
    starts = (one["at"] for one in records if one.get("status") == "RUNNING")
    return max((at for at in starts if at <= until), default=0)


def last_sign(state: Path) -> int | None:
    """When the job of a journal last wrote something that has a time."""
    return max((one["at"] for one, _ in read_records(state / JOURNAL) if "at" in one), default=None)


def forget_sent(root: Path, uri: str) -> None:
    """Drop the positions for ``uri`` of all journals below ``root``: its store was made anew."""
    for path in root.rglob(SENT):
        entries = _load_sent(path.parent)
        if entries.pop(address_key(uri), None) is not None:
            _save_sent(path.parent, entries)


def is_database(uri: str) -> bool:
    """Whether mlflow opens the database of a store itself, with no server before it."""
    return uri.partition(":")[0] not in ("http", "https", "databricks")


def sqlite_file(uri: str) -> Path:
    """File of a store whose address begins with ``sqlite:``."""
    return Path(uri.partition("?")[0].partition("///")[2])


def is_written(state: Path) -> bool:
    """Whether a living process holds the journal."""
    with (state / JOURNAL).open("r+b") as file:  # NFS locks no file that is only read
        return not try_lock(file.fileno())


def _load_sent(state: Path) -> dict[str, Any]:
    try:
        entries = json.loads((state / SENT).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}  # sending again from the start is harmless: the store knows each point
    return entries if isinstance(entries, dict) else {}


def _save_sent(state: Path, entries: dict[str, Any]) -> None:
    write_text(state / SENT, json.dumps(entries, indent=1, sort_keys=True) + "\n")


def address_key(uri: str) -> str:
    """Name of a place without what may be secret in its address."""
    return hashlib.sha256(uri.encode()).hexdigest()[:16]
