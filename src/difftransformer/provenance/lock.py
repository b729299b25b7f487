"""Locks that go with their process: the kernel frees them however it ends."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from difftransformer.errors import UserError

LOCK = "lock"

logger = logging.getLogger(__name__)


@contextmanager
def exclusive(state: Path) -> Iterator[None]:
    """Hold the lock of a job's state folder (made if missing), waiting for who has it.

    That is a job left over from a workflow that was killed, or the same command in another
    terminal; behind it there is little left to do.
    """
    state.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(state / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _taken(descriptor):
            logger.warning(
                "process %s is doing this job (%s): waiting until it ends",
                _holder(descriptor),
                state,
            )
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        _sign(descriptor)
        yield
    finally:
        os.close(descriptor)


def hold(path: Path, doing: str) -> int:
    """Take the lock ``path`` until this process ends; returns its descriptor.

    Raises:
        UserError: another process has it; the line names its pid and what it is ``doing``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    if not _taken(descriptor):
        holder = _holder(descriptor)
        os.close(descriptor)
        raise UserError(f"process {holder} is {doing}: wait for it or end it, then try again")
    _sign(descriptor)
    return descriptor


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"


def _sign(descriptor: int) -> None:
    """Write the process id for the message of who comes second; a full disk is no reason."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        logger.debug("no pid in the lock: %s", error)
