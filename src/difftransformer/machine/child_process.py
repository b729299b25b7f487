"""Run a function in a new process that inherits only the environment.

Its errors are raised and its log is written in this process, and it ends with this one.
"""

import logging
import os
import signal
import threading
import traceback
from collections.abc import Callable
from logging.handlers import QueueHandler
from multiprocessing import connection, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from types import SimpleNamespace
from typing import Any, TypeVar

from difftransformer.errors import UserError, in_one_line
from difftransformer.machine import slurm

T = TypeVar("T")


def run_in_subprocess(name: str, work: Callable[..., T], *args: Any) -> T:
    """Run a function in a new process and return its result.

    Args:
        name: Name of the process in messages, such as `process 2 of 5`.
        work: A module-level function, which the process imports.
        args: Its arguments; they and its result can be pickled.

    Raises:
        UserError: The process was ended from outside.
        Exception: What ``work`` raised; a note holds its traceback there.
    """
    new = get_context("spawn")
    ours, theirs = new.Pipe(duplex=False)
    level = logging.getLogger("difftransformer").level
    process = new.Process(target=_run, args=(theirs, level, work, args))
    resource_tracker.ensure_running()  # starting it would let SIGTERM through again
    try:
        with theirs, slurm.block_signals(signal.SIGINT, signal.SIGTERM):
            process.start()  # who started it hears them, and ends it
        while isinstance(message := ours.recv(), logging.LogRecord):
            logging.getLogger(message.name).handle(message)
    except EOFError:
        process.join()
        raise UserError(_ended(name, process.exitcode or 0)) from None
    except BaseException:  # this process is to stop, too
        if process.pid is not None:
            process.kill()
        raise
    finally:
        ours.close()
        if process.pid is not None:
            process.join()
    result, error = message
    if error is not None:
        raise error
    found: T = result
    return found


def _ended(name: str, status: int) -> str:
    if status >= 0:
        return f"{name} ended with status {status} and without a word: start it again"
    how = signal.Signals(-status).name
    want = ", most likely for want of memory" if -status == signal.SIGKILL else ""
    return f"{name} was ended by {how}{want}: nothing of it is kept; start it again"


# --- in the new process


def _run(theirs: Connection, level: int, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    end_with_parent()
    # A handler asks a queue for nothing but this.
    handler = QueueHandler(SimpleNamespace(put_nowait=theirs.send))
    logging.getLogger().addHandler(handler)
    logging.getLogger("difftransformer").setLevel(level)
    message: tuple[Any, Exception | None]
    try:
        message = work(*args), None
    except Exception as error:
        message = None, _portable(error)
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
    try:
        found: Exception = ForkingPickler.loads(ForkingPickler.dumps(error))  # as a pipe sends it
    except Exception:  # a class of its own, or made of more than it keeps
        found = RuntimeError(in_one_line(error))
    found.add_note("".join(traceback.format_exception(error)))
    return found
