"""File locks (`flock`), which the kernel releases when their process ends.

They also work between nodes on NFS, and on Lustre if it is mounted with ``flock``.
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
    """Lock an open file; return False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(descriptor: int) -> None:
    """Lock an open file, waiting while another process holds the lock."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def open_lock(path: Path) -> tuple[int, str | None]:
    """Open and lock a file, created if missing; return its descriptor, and the holder if locked.

    Raises:
        UserError: The file is a link, which could point to any file.
    """
    descriptor = _open(path)
    if try_lock(descriptor):
        return descriptor, None
    return descriptor, os.pread(descriptor, 300, 0).decode(errors="replace").strip() or "unknown"


def sign(descriptor: int) -> None:
    """Write this process and host into a lock file, for messages of waiting processes."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except OSError as error:
        logger.debug("lock file not signed: %s", error)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, created if missing; wait while another process holds it.

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
