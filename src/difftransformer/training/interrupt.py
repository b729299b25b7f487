"""Stop signals of schedulers: finish the step, write a checkpoint, exit as resumable."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


class Interrupted(SystemExit):
    """Exit of a training that received a stop signal; the same call resumes the training.

    It is a `SystemExit` with status 75 (``EX_TEMPFAIL``): it passes through ``except Exception``
    and ends the process as resumable without a traceback. ``str()`` is one line for the log.
    """

    def __init__(self, message: str, signal: str | None = None) -> None:
        super().__init__(os.EX_TEMPFAIL)
        self.message, self.signal = message, signal

    def __str__(self) -> str:
        return self.message


@dataclass
class StopRequest:
    """Holder of the stop signal that the process has received, None if none."""

    signal: str | None = None


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Turn SIGTERM, SIGINT and SIGUSR1 into a `StopRequest`; a second SIGINT ends the process.

    Schedulers repeat SIGTERM, Slurm within 20 ms, while the checkpoint is still being written; only
    a person at the keyboard sends a second SIGINT on purpose. SIGUSR1 announces the time limit.
    After a stop signal, SIGTERM and SIGUSR1 are ignored until the process ends, so that a repeated
    one cannot kill its last steps. Outside the main thread Python handles no signals: the request
    stays empty.
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
            is_stopping = request.signal is not None and number != signal.SIGINT
            signal.signal(number, signal.SIG_IGN if is_stopping else handler)
