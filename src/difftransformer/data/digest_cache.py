"""Large files of a dataset are hashed once a day and not by each job.

A stamp beside a file says which content it was found to have, and in which state of the file
system: inode, length, times of the last write and of the last change of any kind. Whatever writes
to the file, or puts another in its place, moves the last of these, also where a tool sets back the
time of writing; then, and when the stamp is a day old, for disks lose bits without a write, it is
read again. Small files are read by each job as before.
"""

import json
import time
from contextlib import suppress
from pathlib import Path

from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.checksums import file_state

SMALLEST = 1 << 26
"""Bytes from which a file has a stamp: 64 MiB, a fifth of a second to hash."""
LASTS = 24 * 3600.0
"""Seconds that a stamp is believed."""
_SETTLED = 2.0
"""A file that was touched within these seconds before it was read may be touched unseen."""


def cached_sha256(path: Path) -> str | None:
    """Return the SHA-256 that a file was found to have and, as it is untouched, has; else None."""
    state = list(file_state(path))
    if state[1] < SMALLEST:
        return None
    try:
        stamp = json.loads(_place(path).read_text(encoding="utf-8"))
        fresh = 0 <= time.time() - float(stamp["checked"]) < LASTS
        return str(stamp["sha256"]) if fresh and stamp["state"] == state else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def cache_sha256(path: Path, sha256: str, started: float) -> None:
    """Stamp a file whose digest was computed from ``started`` on, in seconds of the epoch.

    Not where it was touched since or just before, and not where its folder cannot be written.
    """
    state = list(file_state(path))
    if state[1] < SMALLEST or state[3] / 1e9 > started - _SETTLED:
        return
    stamp = {"sha256": sha256, "state": state, "checked": started}
    with suppress(OSError):
        write_text(_place(path), json.dumps(stamp) + "\n")


def _place(path: Path) -> Path:
    return path.with_name(f".{path.name}.checked.json")
