"""A log line now and then on a long job over data: how far, how fast, how long still."""

import logging
import time


class Progress:
    """Logs at most every `interval` seconds.

    Args:
        log: Where the lines go.
        label: What is being done.
        total: Tokens to do in all, or None where nobody knows; then there is no ETA.
        done: Tokens that an earlier, interrupted job did.
        interval: Least time between two lines, in seconds.
    """

    def __init__(
        self,
        log: logging.Logger,
        label: str,
        total: int | None,
        done: int = 0,
        interval: float = 5.0,
    ) -> None:
        self._log, self._label, self._total, self._interval = log, label, total, interval
        self._started_with = done
        self._started = self._said = time.monotonic()

    def report(self, done: int) -> None:
        """Note that `done` tokens in all are done."""
        now = time.monotonic()
        if now - self._said < self._interval:
            return
        self._said = now
        speed = (done - self._started_with) / (now - self._started)
        if self._total is None:
            self._log.info("%s: %.2fM tokens, %.0fk tok/s", self._label, done / 1e6, speed / 1e3)
            return
        left = (self._total - done) / speed if speed else float("inf")
        self._log.info(
            "%s: %.2fM of %.2fM tokens, %.0fk tok/s, ETA %.0f s",
            self._label,
            done / 1e6,
            self._total / 1e6,
            speed / 1e3,
            left,
        )
