"""A pace that all jobs on a machine keep together: the next free moment stands in a locked file."""

import fcntl
import time
from pathlib import Path


class Pace:
    """Lets at most so many requests a minute start, whichever process or thread starts them.

    Args:
        path: File that the processes share.
        per_minute: Most requests in a minute; they start evenly spaced.
    """

    def __init__(self, path: Path, per_minute: float) -> None:
        self._path, self._interval = path, 60 / per_minute
        path.parent.mkdir(parents=True, exist_ok=True)

    def wait(self) -> None:
        """Wait for the next free moment and take it."""
        with self._path.open("a+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            now, written = time.time(), file.read()
            try:
                booked = float(written)
            except ValueError:
                booked = now
            # What no pace of ours could have written, such as after the clock was put back.
            mine = max(now, booked if booked < now + 3600 else now)
            file.truncate(0)
            file.write(f"{mine + self._interval:.6f}")
        time.sleep(max(0.0, mine - now))
