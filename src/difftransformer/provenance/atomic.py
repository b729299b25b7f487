"""Atomic writes: a temporary file is fsynced and renamed, so readers never see a partial file.

The temporary file is in the same folder (a rename is atomic only within one file system), hidden,
has the suffix of the target (writers such as ``savefig`` choose the format by it) and contains host
and process id, so two processes never share one. Leftovers of a killed process are removed by the
next process on that host that writes the same file, or by any process after a day: on a shared
disk other hosts cannot tell whether the process is alive.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

_ABANDONED = 86_400.0
"""Seconds without a write after which a temporary file of another host is removed."""


@contextmanager
def replacing(path: Path | str, *, durable: bool = True) -> Iterator[Path]:
    """Context manager: yield a temporary path next to ``path``, renamed to ``path`` on success.

    The caller writes one file to the yielded path. At the end of the block the file is fsynced and
    renamed to ``path``; after an exception it is removed and ``path`` is unchanged. Missing parent
    folders are created. Without ``durable`` nothing is fsynced: for small files that the caller
    checks when it finds them, since a power failure may leave them empty.

    Raises:
        FileNotFoundError: The block did not write the yielded path.
        OSError: The file system is full or read-only; ``path`` is unchanged.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    writer = f"{_host()}.{os.getpid()}"
    aside = target.with_name(f".{target.stem}.{writer}.partial{target.suffix}")
    if durable:
        _remove_leftovers(target)
    try:
        yield aside
        if durable:
            sync(aside)
        aside.replace(target)
        if durable:
            sync(target.parent)
    except OSError as error:
        if error.filename in (None, str(aside)):  # report the name that the user knows
            error.filename = str(target)
        raise
    finally:
        aside.unlink(missing_ok=True)


def write_bytes(path: Path | str, data: bytes, *, durable: bool = True) -> None:
    """Write ``data`` to ``path`` atomically (see `replacing`)."""
    with replacing(path, durable=durable) as aside:
        aside.write_bytes(data)


def write_text(path: Path | str, text: str) -> None:
    """Write ``text`` to ``path`` atomically, as UTF-8 with unchanged line ends."""
    write_bytes(path, text.encode("utf-8"))


def link(source: Path, target: Path) -> None:
    """Make ``target`` a hard link to ``source`` atomically, or a copy if links are unsupported."""
    with replacing(target) as aside:
        try:
            aside.hardlink_to(source)
        except OSError:
            shutil.copyfile(source, aside)


def make_lasting_folder(path: Path) -> None:
    """Create a folder with a hidden file in it, since object storage has no empty folders."""
    path.mkdir(parents=True)
    (path / ".folder").touch()


def _host() -> str:
    """Return the host name, safe for file names."""
    return re.sub(r"[^\w-]", "_", socket.gethostname())


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files of ``target`` whose processes have ended."""
    pattern = re.compile(
        rf"\.{re.escape(target.stem)}\.([\w-]+)\.(\d+)\.partial{re.escape(target.suffix)}", re.ASCII
    )
    with os.scandir(target.parent) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(".")]
    for name in names:
        if not (match := pattern.fullmatch(name)):
            continue
        path = target.with_name(name)
        with suppress(FileNotFoundError):  # the process that writes it may just have finished
            if match[1] == _host():
                dead = not psutil.pid_exists(int(match[2]))
            else:
                dead = time.time() - path.stat().st_mtime > _ABANDONED
            if dead:
                path.unlink()


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk with fsync."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
