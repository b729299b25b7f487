"""Run a function in a new process that inherits only environment variables.

The new process sends its errors and log records to this process, and ends with this process.
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
        name: Name of the process in error messages, such as `process 2 of 5`.
        work: A module-level function, which the new process imports.
        args: Arguments of ``work``. They and its result must be picklable.

    Raises:
        UserError: The process was killed.
        Exception: The exception raised by ``work``, with its traceback as a note.
    """
    new = get_context("spawn")
    receiver, sender = new.Pipe(duplex=False)
    level = logging.getLogger("difftransformer").level
    process = new.Process(target=_run, args=(sender, level, work, args))
    resource_tracker.ensure_running()  # start it here, since its start would unblock SIGTERM
    try:
        with sender, slurm.block_signals(signal.SIGINT, signal.SIGTERM):
            process.start()  # only this process handles the signals, and ends the new one
        while isinstance(message := receiver.recv(), logging.LogRecord):
            logging.getLogger(message.name).handle(message)
    except EOFError:
        process.join()
        raise UserError(_ended(name, process.exitcode or 0)) from None
    except BaseException:  # this process stops, so the new one must stop too
        if process.pid is not None:
            process.kill()
        raise
    finally:
        receiver.close()
        if process.pid is not None:
            process.join()
    result, error = message
    if error is not None:
        raise error
    value: T = result
    return value


def _ended(name: str, status: int) -> str:
    if status >= 0:
        return f"{name} ended with status {status} and no message: start it again"
    name_of_signal = signal.Signals(-status).name
    reason = ", most likely out of memory" if -status == signal.SIGKILL else ""
    return f"{name} was ended by {name_of_signal}{reason}: its work is lost; start it again"


# --- in the new process


def _run(sender: Connection, level: int, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    end_with_parent()
    # QueueHandler uses only this method of a queue.
    handler = QueueHandler(SimpleNamespace(put_nowait=sender.send))
    logging.getLogger().addHandler(handler)
    logging.getLogger("difftransformer").setLevel(level)
    message: tuple[Any, Exception | None]
    try:
        message = work(*args), None
    except Exception as error:
        message = None, _portable(error)
    logging.getLogger().removeHandler(handler)
    sender.send(message)


def end_with_parent() -> None:
    """End this process when its parent process ends, which it would not notice while it works."""
    parent = parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def watch() -> None:
        connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _portable(error: Exception) -> Exception:
    """Return an exception that can be pickled, with the traceback as a note."""
    try:
        portable: Exception = ForkingPickler.loads(
            ForkingPickler.dumps(error)
        )  # as a pipe sends it
    except Exception:  # of a local class, or of a class that does not pickle its arguments
        portable = RuntimeError(in_one_line(error))
    portable.add_note("".join(traceback.format_exception(error)))
    return portable
