"""File locks (`flock`), which the kernel releases when the process that holds them ends.

They also work between nodes on NFS, and on Lustre if it is mounted with the option ``flock``.
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
    """Lock an open file without waiting; return False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(descriptor: int) -> None:
    """Lock an open file, after waiting while another process holds the lock."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def open_lock(path: Path) -> tuple[int, str | None]:
    """Open a lock file, created if missing, and try to lock it.

    Returns:
        The file descriptor, and None if the lock was acquired. Otherwise, the second value is the
        id and host of the process that holds the lock.

    Raises:
        UserError: The file is a link, which could point to any file.
    """
    descriptor = _open(path)
    if try_lock(descriptor):
        return descriptor, None
    return descriptor, os.pread(descriptor, 300, 0).decode(errors="replace").strip() or "unknown"


def sign(descriptor: int) -> None:
    """Write the id and host of this process into a lock file, for messages of waiting processes."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except OSError as error:
        logger.debug("lock file not signed: %s", error)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Context manager: hold a lock file, created if missing, after waiting for its lock.

    Raises:
        UserError: The file is a link, which could point to any file.
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
