"""One process a state folder: keeps an orphaned job and its successor apart."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from difftransformer.errors import UserError


@contextmanager
def exclusive(state: Path) -> Iterator[None]:
    """Hold the lock of ``state`` (made if missing); the kernel frees it however the process ends.

    Raises:
        UserError: another process holds it; the line names its pid.
    """
    state.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise UserError(
                f"process {holder} is training in {state}: wait for it or end it, then try again"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
