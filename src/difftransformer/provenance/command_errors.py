"""How a command speaks and how it ends: log lines, ``error:`` lines, exit status; no secrets.

One readable ``error:`` line for what a user can mend, a traceback and such a line for a fault of
ours; both in the log and on stderr. Exit status: 2 for a user's mistake, 1 for a fault of ours,
75 (``EX_TEMPFAIL``) for a stop that the same command continues.

Passwords and tokens are masked in every line (`masking`).
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
"""What to do about an error of the file system that is no fault of this program."""

logger = logging.getLogger(__name__)


@contextmanager
def report_errors(
    log: Path | None = None, level: int = logging.INFO, mode: str = "w"
) -> Iterator[None]:
    """Log to stderr and ``log``; turn an exception into its ``error:`` line and exit status.

    Args:
        log: A file.
        level: Lines of less weight are left out.
        mode: "w" for a new log, "a" to write into one that is another process's, too.
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
            "out of memory (%s): lower batch sizes, lengths or the model's sizes, or close other "
            "programs; what was finished is kept, and the same command continues",
            mask_secrets(" ".join(str(error).split()))[:120] or type(error).__name__,
        )
        raise SystemExit(2) from error
    finally:
        for handler in handlers:
            logging.getLogger().removeHandler(handler)
            with suppress(OSError):  # a full disk has been reported by what needed it
                handler.close()


def _end(error: OSError) -> SystemExit:
    """Say what the file system refused; nothing where who reads, as `head`, has seen enough."""
    if isinstance(error, BrokenPipeError) and _nobody_reads():
        return SystemExit(128 + signal.SIGPIPE)  # as what does not catch it ends
    if error.errno not in _CURES:
        return _fault(error)
    logger.error("%s", describe_error(error))
    return SystemExit(2)


def _nobody_reads() -> bool:
    """Whether what we print has no reader; then it goes nowhere from now on."""
    try:
        output, looks = sys.stdout.fileno(), select.poll()
    except (AttributeError, OSError, ValueError):  # no file
        return False
    looks.register(output, 0)
    if not any(seen & (select.POLLERR | select.POLLHUP) for _, seen in looks.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True


def describe_error(error: UserError | OSError) -> str:
    """Say in one line what we or the file system refused, and what to do about it."""
    if isinstance(error, UserError):
        return str(error)
    reason = os.strerror(error.errno or 0)
    cure = _CURES.get(error.errno or 0, "choose another path")
    return f"{error.filename or 'writing'}: {reason}; {cure}"


_SAID_WITHOUT_MEMORY = ("can't allocate memory", "could not create a primitive")
"""What torch's allocator and oneDNN say; neither has an exception of its own for it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, in Python or in torch, which need not be loaded here."""
    named = {kind.__name__ for kind in type(error).__mro__}
    said = str(error)
    return bool({"MemoryError", "OutOfMemoryError"} & named) or any(
        words in said for words in _SAID_WITHOUT_MEMORY
    )


class _LineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = mask_secrets(super().format(record))
        if record.levelno >= logging.WARNING:
            return f"{record.levelname.lower()}: {text}"
        return f"{self.formatTime(record, '%H:%M:%S')} {text}"


class _LogFile(logging.FileHandler):
    """A log on a full disk loses lines; stderr has them all."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass


def _set_up_logging(
    log: Path | None, level: int, mode: str, handlers: list[logging.Handler]
) -> None:
    """Add the handlers to the root logger and to ``handlers``, stderr first: a log may fail."""
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
    logger.info("a fault of this program:", exc_info=error)
    logger.error("%s: %s (traceback above)", type(error).__name__, " ".join(str(error).split()))
    return SystemExit(1)
