"""A scheduler's request to stop: finish the step, write a checkpoint, exit as resumable."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


class Interrupted(SystemExit):
    """Training was asked to stop and can be continued by the same call.

    A `SystemExit` with status 75 (``EX_TEMPFAIL``): it passes through ``except Exception`` and
    ends the process as resumable without a traceback. ``str()`` is one line for the log.
    """

    def __init__(self, message: str, signal: str | None = None) -> None:
        super().__init__(os.EX_TEMPFAIL)
        self.message, self.signal = message, signal

    def __str__(self) -> str:
        return self.message


@dataclass
class StopRequest:
    """Whether, and by which signal, the process was asked to stop."""

    signal: str | None = None


@contextmanager
def listening() -> Iterator[StopRequest]:
    """Turn SIGTERM, SIGINT and SIGUSR1 into a `StopRequest`; a second SIGINT ends the process.

    Schedulers repeat SIGTERM, Slurm within 20 ms, while the checkpoint is still being written; only
    a person at the keyboard means the second one. SIGUSR1 is a scheduler's word that the time is
    nearly over. Who was asked to stop is not asked again: from then on both are ignored, as long as
    the process lives, whose last steps no repeated SIGTERM may turn into a kill. Outside the main
    thread Python cannot take signals: there the request stays empty.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def receive(number: int, _frame: FrameType | None) -> None:
        request.signal = request.signal or signal.Signals(number).name
        if number == signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    previous = {number: signal.signal(number, receive) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            asked = request.signal is not None and number != signal.SIGINT
            signal.signal(number, signal.SIG_IGN if asked else handler)
