"""Locks on files: the kernel frees them with the process that has them, however it ends.

`flock`: on NFS and, where it is mounted with ``flock``, on Lustre they hold between nodes, too.
"""

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from difftransformer.errors import UserError

logger = logging.getLogger(__name__)


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file; False where another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(descriptor: int) -> None:
    """Take the lock of an open file, waiting for who has it."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def open_lock(path: Path) -> tuple[int, str | None]:
    """Open a lock file, made if missing; return its descriptor, and the holder if it is taken.

    Raises:
        UserError: The file is a link, which could lead to any other file.
    """
    descriptor = _open(path)
    if try_lock(descriptor):
        return descriptor, None
    return descriptor, os.pread(descriptor, 300, 0).decode(errors="replace").strip() or "unknown"


def sign(descriptor: int) -> None:
    """Write who has the lock, for the message of who comes second; a full disk is no reason."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except OSError as error:
        logger.debug("no name in the lock: %s", error)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, made if missing with its folder; wait while another process holds it.

    Raises:
        UserError: The file is a link.
    """
    descriptor = _open(path)
    try:
        wait_for_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise UserError(
            f"{path}: is a link, but a lock must be a regular file: remove it"
        ) from None
