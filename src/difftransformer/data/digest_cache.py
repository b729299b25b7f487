"""Cache of the SHA-256 of large dataset files, so that they are hashed once a day.

A cache file beside each file holds its digest and its state in the file system: inode, size, mtime
and ctime. Any write or replacement changes ctime, even where a tool resets mtime. The digest is
valid for a day, since disks lose bits without a write. Small files are always hashed.
"""

import json
import time
from contextlib import suppress
from pathlib import Path

from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.checksums import file_state

MIN_SIZE = 1 << 26
"""Minimum file size in bytes to cache a digest: 64 MiB takes a fifth of a second to hash."""
MAX_AGE = 24 * 3600.0
"""Seconds for which a cached digest is valid."""
_SETTLED = 2.0
"""Seconds before hashing in which a change may not show in the file's timestamps."""


def cached_sha256(path: Path) -> str | None:
    """Return the cached SHA-256 of an unchanged file, or None without a recent entry."""
    state = list(file_state(path))
    if state[1] < MIN_SIZE:
        return None
    try:
        entry = json.loads(_cache_path(path).read_text(encoding="utf-8"))
        fresh = 0 <= time.time() - float(entry["checked"]) < MAX_AGE
        return str(entry["sha256"]) if fresh and entry["state"] == state else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def cache_sha256(path: Path, sha256: str, started: float) -> None:
    """Cache the SHA-256 of a file, whose computation began at Unix time ``started``.

    Nothing is cached if the file changed since then or just before, or if its folder is read-only.
    """
    state = list(file_state(path))
    if state[1] < MIN_SIZE or state[3] / 1e9 > started - _SETTLED:
        return
    entry = {"sha256": sha256, "state": state, "checked": started}
    with suppress(OSError):
        write_text(_cache_path(path), json.dumps(entry) + "\n")


def _cache_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.checked.json")
