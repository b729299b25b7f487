"""Finished files appear whole or not at all: written aside, fsynced, renamed.

A reader, a killed job or a power cut sees either the old file or the new one. The temporary file
lies in the same folder (a rename is atomic only within one file system), is hidden, keeps the
suffix of the target (writers such as ``savefig`` choose the format by it) and carries the host and
the process id, so two processes never write into each other's file. What a killed process left is
removed by the next one on its host that writes the same file, or by any after a day: on a shared
disk nobody else can tell whether it lives.
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
"""Seconds without a write after which an unfinished file of another host counts as abandoned."""


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; on success it becomes ``path``.

    The caller writes one file at the yielded path. Leaving the block normally fsyncs that file,
    renames it over ``path`` and fsyncs the folder; leaving it by an exception removes the
    temporary file and keeps ``path`` as it was. Missing parent folders are made.

    Raises:
        FileNotFoundError: the block ended without writing the yielded path.
        OSError: the file system refused (full, read-only); ``path`` is unchanged.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    writer = f"{_host()}.{os.getpid()}"
    aside = target.with_name(f".{target.stem}.{writer}.partial{target.suffix}")
    _remove_leftovers(target)
    try:
        yield aside
        sync(aside)
        aside.replace(target)
        sync(target.parent)
    except OSError as error:
        if error.filename in (None, str(aside)):  # a write says no name, and nobody knows the other
            error.filename = str(target)
        raise
    finally:
        aside.unlink(missing_ok=True)


def write_bytes(path: Path | str, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically (see `replacing`)."""
    with replacing(path) as aside:
        aside.write_bytes(data)


def write_text(path: Path | str, text: str) -> None:
    """Write ``text`` to ``path`` atomically, as UTF-8 with the line ends it has."""
    write_bytes(path, text.encode("utf-8"))


def link(source: Path, target: Path) -> None:
    """Give a file a second name atomically, or copy it where the file system has no links."""
    with replacing(target) as aside:
        try:
            aside.hardlink_to(source)
        except OSError:
            shutil.copyfile(source, aside)


def make_lasting_folder(path: Path) -> None:
    """Make a folder that object storage has, too, where a folder without files is none."""
    path.mkdir(parents=True)
    (path / ".folder").touch()


def _host() -> str:
    """Return the name of this host, without what a file name cannot have."""
    return re.sub(r"[^\w-]", "_", socket.gethostname())


def _remove_leftovers(target: Path) -> None:
    """Remove unfinished files of ``target`` whose processes have ended."""
    pattern = re.compile(
        rf"\.{re.escape(target.stem)}\.([\w-]+)\.(\d+)\.partial{re.escape(target.suffix)}", re.ASCII
    )
    with os.scandir(target.parent) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(".")]
    for name in names:
        if not (found := pattern.fullmatch(name)):
            continue
        path = target.with_name(name)
        with suppress(FileNotFoundError):  # its writer may be done by now
            if found[1] == _host():
                dead = not psutil.pid_exists(int(found[2]))
            else:
                dead = time.time() - path.stat().st_mtime > _ABANDONED
            if dead:
                path.unlink()


def sync(path: Path) -> None:
    """Wait until a file, or what a folder lists, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
