"""Run a function in a new process that inherits only the environment.

It says what went wrong as this process would have said it, its log is this process's log, and it
ends with this one however that ends.
"""

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from logging.handlers import QueueHandler
from multiprocessing import connection, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from typing import Any, Literal, TypeVar

from difftransformer.errors import UserError, in_one_line
from difftransformer.machine import slurm

T = TypeVar("T")
Message = tuple[Literal["log", "gave", "raised"], Any]


def run_in_subprocess(name: str, work: Callable[..., T], *given: Any) -> T:
    """Run a function in a new process and return its result.

    Args:
        name: Name of the process in messages, such as `process 2 of 5`.
        work: A module-level function, which the process imports.
        given: Its arguments; they and its result can be pickled.

    Raises:
        UserError: The process was ended from outside.
        Exception: What ``work`` raised; a note holds its traceback there.
    """
    new = get_context("spawn")
    ours, theirs = new.Pipe(duplex=False)
    level = logging.getLogger("difftransformer").level
    process = new.Process(target=_run, args=(theirs, level, work, given))
    with ours:
        try:
            resource_tracker.ensure_running()  # starting it would let SIGTERM through again
            with theirs, slurm.unheard(signal.SIGINT, signal.SIGTERM):
                process.start()  # who started it hears them, and ends it
            last = _listen(ours)
        except BaseException:  # this process is to stop, too
            if process.pid is not None:
                process.kill()
            raise
        finally:
            if process.pid is not None:
                process.join()
    if last is None:
        raise UserError(_ended(name, process.exitcode or 0))
    kind, answer = last
    if kind == "raised":
        raise answer
    found: T = answer
    return found


def _listen(ours: Connection) -> Message | None:
    """Log what the process logs, until it gives or raises something, or is no more."""
    while True:
        try:
            message: Message = ours.recv()
        except EOFError:
            return None
        if message[0] != "log":
            return message
        record: logging.LogRecord = message[1]
        logging.getLogger(record.name).handle(record)


def _ended(name: str, status: int) -> str:
    if status >= 0:
        return f"{name} ended with status {status} and without a word: start it again"
    how = signal.Signals(-status).name
    want = ", most likely for want of memory" if -status == signal.SIGKILL else ""
    return f"{name} was ended by {how}{want}: nothing of it is kept; start it again"


# --- in the new process


class _ToParent(QueueHandler):
    """Sends records as they are to be said."""

    def __init__(self, theirs: Connection) -> None:
        super().__init__(theirs)  # type: ignore[arg-type]  # it is asked for nothing but `enqueue`
        self._theirs = theirs

    def enqueue(self, record: logging.LogRecord) -> None:
        self._theirs.send(("log", record))


def _run(theirs: Connection, level: int, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    end_with_parent()
    handler = _ToParent(theirs)
    logging.getLogger().addHandler(handler)
    logging.getLogger("difftransformer").setLevel(level)
    try:
        message: Message = ("gave", work(*given))
    except Exception as error:
        message = ("raised", _portable(error))
    logging.getLogger().removeHandler(handler)
    theirs.send(message)


def end_with_parent() -> None:
    """Have this process end when its parent is killed: at work, or waiting, it would not see it."""
    parent = parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def watch() -> None:
        connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _portable(error: Exception) -> Exception:
    """Return an error that the parent can raise, with where it was raised here."""
    kind = type(error)
    known = getattr(sys.modules[kind.__module__], kind.__qualname__, None) is kind
    made_of: Any = error.__reduce__()[1]  # its args, and of an OSError the files, too
    plain = all(isinstance(one, str | int | float | None) for one in made_of)
    found: Exception = RuntimeError(in_one_line(error))
    if known and plain:
        with suppress(TypeError):  # of a library, made of more than what it keeps
            found = kind(*made_of)
    found.add_note("".join(traceback.format_exception(error)))
    return found
