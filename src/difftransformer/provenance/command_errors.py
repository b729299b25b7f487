"""Logging and error reporting of commands: log lines, ``error:`` lines, exit status.

A user's mistake is one ``error:`` line and status 2. A bug is a traceback, an ``error:`` line and
status 1. An interruption after which the same command resumes is status 75 (``EX_TEMPFAIL``).
Secrets are masked in every line (`masking`).
"""

from __future__ import annotations

import errno
import logging
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from difftransformer.errors import UserError
from difftransformer.extras import install_hint
from difftransformer.provenance.environment import check_variables
from difftransformer.provenance.masking import mask_secrets

_CURES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room there"),
    **dict.fromkeys(
        (errno.EROFS, errno.EACCES, errno.EPERM), "allow writing there, or choose another path"
    ),
    **dict.fromkeys(
        (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
        "choose another path, or move what is in the way",
    ),
}
"""Advice for the user by errno, for file system errors that are not bugs of this program."""

logger = logging.getLogger(__name__)


@contextmanager
def report_errors(
    log: Path | None = None, level: int = logging.INFO, mode: str = "w"
) -> Iterator[None]:
    """Context manager: log to stderr and ``log``, and turn exceptions into an exit with a status.

    An exception is logged as one ``error:`` line. The module docstring lists the exit statuses.

    Args:
        log: Log file; None logs to stderr only.
        level: Minimum level of log lines.
        mode: Mode in which ``log`` is opened: "w" replaces an old log, "a" appends to it.
    """
    handlers: list[logging.Handler] = []
    try:
        _set_up_logging(log, level, mode, handlers)
        check_variables()
        yield
    except SystemExit as stop:
        if stop.code not in (None, 0):
            logger.warning("stopped: %s", stop)
        raise
    except KeyboardInterrupt as stop:
        logger.warning("stopped from the keyboard")
        raise SystemExit(130) from stop
    except UserError as error:
        logger.error("%s", " ".join(str(error).split()))
        raise SystemExit(2) from error
    except OSError as error:
        raise _end(error) from error
    except ModuleNotFoundError as error:
        if (cure := install_hint(error)) is None:
            raise _fault(error) from error
        logger.error("%s", cure)
        raise SystemExit(2) from error
    except Exception as error:
        if not is_out_of_memory(error):
            raise _fault(error) from error
        logger.error(
            "out of memory (%s): reduce batch size, sequence length or model size, or close other "
            "programs; finished work is not lost, and the same command resumes",
            mask_secrets(" ".join(str(error).split()))[:120] or type(error).__name__,
        )
        raise SystemExit(2) from error
    finally:
        for handler in handlers:
            logging.getLogger().removeHandler(handler)
            with suppress(OSError):  # a full disk has been reported already
                handler.close()


def _end(error: OSError) -> SystemExit:
    """Report an error of the file system; a closed pipe, as by `head`, is not an error."""
    if isinstance(error, BrokenPipeError) and _is_stdout_closed():
        return SystemExit(128 + signal.SIGPIPE)  # the status of a process killed by the signal
    if error.errno not in _CURES:
        return _fault(error)
    logger.error("%s", describe_error(error))
    return SystemExit(2)


def _is_stdout_closed() -> bool:
    """Return whether the reader of stdout is gone; then redirect stdout to /dev/null."""
    try:
        output, poller = sys.stdout.fileno(), select.poll()
    except (AttributeError, OSError, ValueError):  # not a file
        return False
    poller.register(output, 0)
    if not any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True


def describe_error(error: UserError | OSError) -> str:
    """Return the message of a user's mistake or a file system error as one line with advice."""
    if isinstance(error, UserError):
        return str(error)
    reason = os.strerror(error.errno or 0)
    cure = _CURES.get(error.errno or 0, "choose another path")
    return f"{error.filename or 'writing'}: {reason}; {cure}"


_OUT_OF_MEMORY_MESSAGES = ("can't allocate memory", "could not create a primitive")
"""Messages of torch's allocator and oneDNN, which raise a plain RuntimeError."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception means that memory ran out, in Python or in torch."""
    class_names = {kind.__name__ for kind in type(error).__mro__}
    message = str(error)
    return bool({"MemoryError", "OutOfMemoryError"} & class_names) or any(
        words in message for words in _OUT_OF_MEMORY_MESSAGES
    )


class _LineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = mask_secrets(super().format(record))
        if record.levelno >= logging.WARNING:
            return f"{record.levelname.lower()}: {text}"
        return f"{self.formatTime(record, '%H:%M:%S')} {text}"


class _LogFile(logging.FileHandler):
    """Log file that drops lines when the disk is full; stderr still gets them."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass


def _set_up_logging(
    log: Path | None, level: int, mode: str, handlers: list[logging.Handler]
) -> None:
    """Add handlers for stderr and ``log`` to the root logger and to the list ``handlers``."""
    root = logging.getLogger()
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("difftransformer").setLevel(level)

    def add(handler: logging.Handler) -> None:
        handlers.append(handler)
        handler.setFormatter(_LineFormatter())
        root.addHandler(handler)

    add(logging.StreamHandler(sys.stderr))
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        add(_LogFile(log, mode=mode, encoding="utf-8"))


def _fault(error: Exception) -> SystemExit:
    logger.info("a bug of this program:", exc_info=error)
    logger.error("%s: %s (traceback above)", type(error).__name__, " ".join(str(error).split()))
    return SystemExit(1)
