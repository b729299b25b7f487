"""What a workflow noted of the files that it built, kept where they are: in object storage.

A workflow knows by its notes with which settings, seeds and code a file was made, and they lie on
its own disk. Another machine, with none or older ones, would take whatever is there for what it was
asked for. So all notes are one object beside the files, read before a workflow plans and written
when it ends. Of two notes on a file the later counts: who wrote it made the file that is there.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from difftransformer.errors import DataError, in_one_line
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.storage import open_storage, storage_errors

NAME = "records.json"

Records = dict[str, dict[str, Any]]


def fetch_records(url: str, folder: Path) -> None:
    """Bring the notes of a place here, where they are later than those of ``folder``.

    Raises:
        DataError: They are damaged.
        CheckpointError: The place cannot be read.
    """
    here = _read(folder)
    for name, record in _later(_read_shared(url), here).items():
        write_text(folder / name, json.dumps(record))


def share_records(url: str, folder: Path) -> None:
    """Write the notes of ``folder`` to a place, with those there that are of other files or later.

    Raises:
        DataError: Those there are damaged.
        CheckpointError: The place cannot be read or written.
    """
    there, here = _read_shared(url), _read(folder)
    if not _later(here, there):
        return
    with storage_errors(_at(url), "cannot be written"):
        fs, path = open_storage(_at(url))
        fs.pipe_file(path, json.dumps(here | _later(there, here), sort_keys=True).encode())


def _later(records: Mapping[str, dict[str, Any]], than: Mapping[str, dict[str, Any]]) -> Records:
    """Records that the others lack, or that are later."""

    def ended(record: Mapping[str, Any] | None) -> float:
        return float((record or {}).get("endtime") or 0)

    return {name: one for name, one in records.items() if ended(one) > ended(than.get(name))}


def _read(folder: Path) -> Records:
    """Records of a folder by their path in it; one that is torn is none."""
    found: Records = {}
    for path in folder.rglob("*"):
        with suppress(OSError, ValueError):
            record = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(record, dict):
                found[path.relative_to(folder).as_posix()] = record
    return found


def _read_shared(url: str) -> Records:
    with storage_errors(_at(url), "cannot be read"):
        fs, path = open_storage(_at(url))
        try:
            text = fs.cat_file(path)
        except FileNotFoundError:
            return {}
    try:
        known = json.loads(text)
        names = [PurePosixPath(name) for name in known]
        if any(name.is_absolute() or ".." in name.parts for name in names):
            raise ValueError("a name leads elsewhere")
        return {name: dict(record) for name, record in known.items()}
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{_at(url)}: damaged ({in_one_line(error)}): delete it, and what is there is taken "
            "for made with these settings"
        ) from error


def _at(url: str) -> str:
    return f"{url.rstrip('/')}/{NAME}"
