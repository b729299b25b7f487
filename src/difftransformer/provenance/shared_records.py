"""Snakemake's metadata records, shared between machines through object storage.

Snakemake records locally with which parameters it made each file. Without these records, a machine
would accept any file in the bucket, whatever its settings. So all records are stored as one object
next to the files. The object is fetched before planning and uploaded at the end. If two records
describe the same file, the later one is valid, since its job wrote the current file.
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
    """Copy shared records into ``folder`` if they are newer than its records, or missing.

    Args:
        url: URL of the storage folder with the shared records.
        folder: Local folder of Snakemake's metadata records.

    Raises:
        DataError: The shared records are damaged.
        CheckpointError: The storage cannot be read.
    """
    local = _read(folder)
    for name, record in _newer(_read_shared(url), local).items():
        write_text(folder / name, json.dumps(record))


def share_records(url: str, folder: Path) -> None:
    """Merge the records of ``folder`` into the shared ones; the newer record of each file wins.

    Args:
        url: URL of the storage folder with the shared records.
        folder: Local folder of Snakemake's metadata records.

    Raises:
        DataError: The shared records are damaged.
        CheckpointError: The storage cannot be read or written.
    """
    shared, local = _read_shared(url), _read(folder)
    if not _newer(local, shared):
        return
    with storage_errors(_at(url), "cannot be written"):
        fs, path = open_storage(_at(url))
        fs.pipe_file(path, json.dumps(local | _newer(shared, local), sort_keys=True).encode())


def _newer(records: Mapping[str, dict[str, Any]], others: Mapping[str, dict[str, Any]]) -> Records:
    """Return the records that are missing in others, or newer."""

    def ended(record: Mapping[str, Any] | None) -> float:
        return float((record or {}).get("endtime") or 0)

    return {name: item for name, item in records.items() if ended(item) > ended(others.get(name))}


def _read(folder: Path) -> Records:
    """Return the records of a folder by relative path; incomplete files are skipped."""
    records: Records = {}
    for path in folder.rglob("*"):
        with suppress(OSError, ValueError):
            record = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(record, dict):
                records[path.relative_to(folder).as_posix()] = record
    return records


def _read_shared(url: str) -> Records:
    with storage_errors(_at(url), "cannot be read"):
        fs, path = open_storage(_at(url))
        try:
            text = fs.cat_file(path)
        except FileNotFoundError:
            return {}
    try:
        records = json.loads(text)
        names = [PurePosixPath(name) for name in records]
        if any(name.is_absolute() or ".." in name.parts for name in names):
            raise ValueError("a path outside the folder")
        return {name: dict(record) for name, record in records.items()}
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{_at(url)}: damaged ({in_one_line(error)}): delete it, and existing files "
            "count as made with the current settings"
        ) from error


def _at(url: str) -> str:
    return f"{url.rstrip('/')}/{NAME}"
