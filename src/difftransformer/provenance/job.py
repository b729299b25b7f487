"""The frame around a command that does a job: log, tracking, provenance, and how it ends.

One readable ``error:`` line for what a user can mend, a traceback and such a line for a fault of
ours; both in the log and on stderr. Exit status: 2 for a user's mistake, 1 for a fault of ours,
75 (``EX_TEMPFAIL``) for a stop that the same command continues.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from difftransformer.errors import UserError
from difftransformer.provenance.environment import capture, check_variables
from difftransformer.provenance.lock import exclusive
from difftransformer.provenance.result import Provenance, Result, job_id, origin, write_result
from difftransformer.provenance.secrets import masked
from difftransformer.provenance.sender import Delivery
from difftransformer.provenance.tracking import ROOT, Tracker, start_job

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


@dataclass(frozen=True)
class JobIdentity:
    """Which job this is; the fingerprint comes from `fingerprint.job_fingerprint`."""

    rule: str
    stage: str
    scale: str
    run: str
    fingerprint: str
    seed: int | None = None
    suite: str | None = None
    upstream: Sequence[str] = ()
    threads: int = 1

    @property
    def job_id(self) -> str:
        """Deterministic id that results and tables carry."""
        subject = f"{self.run}-{self.suite}" if self.suite else self.run
        return job_id(self.stage, subject, self.seed, self.fingerprint)

    @property
    def name(self) -> str:
        """The job among all of its stage, whatever its fingerprint."""
        parts = (self.scale, self.run, self.seed, self.suite)
        return "/".join(str(part) for part in parts if part is not None)

    def tags(self) -> dict[str, Any]:
        """Labels of the MLflow run: the identity and the environment."""
        environment = capture(self.threads)
        tags: dict[str, Any] = {
            "rule": self.rule,
            "scale": self.scale,
            "run": self.run,
            "seed": self.seed,
            "suite": self.suite,
            "fingerprint": self.fingerprint,
            "upstream": " ".join(self.upstream) or None,
            "git_commit": environment.git_commit,
            "git_dirty": environment.git_dirty,
            "threads": environment.threads,
            "mlflow.source.git.commit": environment.git_commit,
        }
        tags |= {f"version.{name}": text for name, text in environment.versions.items()}
        tags |= {f"hardware.{name}": value for name, value in environment.hardware.items()}
        return {name: value for name, value in tags.items() if value is not None}


@dataclass(frozen=True)
class Job:
    """A running job."""

    identity: JobIdentity
    tracker: Tracker
    started: datetime

    def origin(self) -> Provenance:
        """Give the provenance of a result that is finished now."""
        identity = self.identity
        return origin(identity.fingerprint, started=self.started, threads=identity.threads)

    def write_result(
        self,
        path: Path,
        kind: str,
        metrics: Mapping[str, float | None],
        settings: dict[str, Any],
        beside: Iterable[Path] = (),
    ) -> Result:
        """Write the result file of this job, and track its metrics and the file."""
        identity = self.identity
        assert identity.seed is not None, "a result belongs to a seed"
        result = Result(
            kind=kind,
            job_id=identity.job_id,
            scale=identity.scale,
            run=identity.run,
            seed=identity.seed,
            suite=identity.suite,
            metrics=dict(metrics),
            settings=settings,
            provenance=self.origin(),
        )
        write_result(path, result, beside)
        self.tracker.log_metrics({k: v for k, v in metrics.items() if v is not None})
        self.tracker.log_artifact(path)
        return result


@contextmanager
def job(
    identity: JobIdentity,
    *,
    state: Path,
    params: Mapping[str, Any],
    log: Path | None = None,
    uri: str | None = None,
    root: Path = ROOT,
) -> Iterator[Job]:
    """Run the block as one job.

    Args:
        identity: Which job it is.
        state: Folder that belongs to this job and fingerprint alone; the job holds its lock.
        params: Resolved settings.
        log: File that gets the log beside stderr.
        uri: Store of the tracking, see `tracking.start_job`.
        root: The results folder.

    Raises:
        SystemExit: in place of a `UserError`, a full disk and the like, and of any other
            exception, after their ``error:`` line.
    """
    with reporting(log), _termination(), ExitStack() as stack:
        stack.enter_context(exclusive(state))
        tracker = stack.enter_context(
            start_job(
                identity.stage,
                identity.name,
                identity.job_id,
                state,
                params,
                identity.tags(),
                uri,
                delivery=Delivery(root=root),
            )
        )
        yield Job(identity, tracker, datetime.now(UTC))


@contextmanager
def reporting(log: Path | None = None) -> Iterator[None]:
    """Log to stderr and ``log``; turn an exception into its ``error:`` line and exit status."""
    handlers: list[logging.Handler] = []
    try:
        _set_up_logging(log, handlers)
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
        if error.errno not in _CURES:
            raise _fault(error) from error
        logger.error("%s", refusal(error))
        raise SystemExit(2) from error
    except Exception as error:
        if not is_out_of_memory(error):
            raise _fault(error) from error
        logger.error(
            "out of memory (%s): lower batch sizes, lengths or the model's sizes, or close other "
            "programs; what was finished is kept, and the same command continues",
            masked(" ".join(str(error).split()))[:120] or type(error).__name__,
        )
        raise SystemExit(2) from error
    finally:
        for handler in handlers:
            logging.getLogger().removeHandler(handler)
            with suppress(OSError):  # a full disk has been reported by what needed it
                handler.close()


def refusal(error: UserError | OSError) -> str:
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
        text = masked(super().format(record))
        if record.levelno >= logging.WARNING:
            return f"{record.levelname.lower()}: {text}"
        return f"{self.formatTime(record, '%H:%M:%S')} {text}"


class _LogFile(logging.FileHandler):
    """A log on a full disk loses lines; stderr has them all."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass


def _set_up_logging(log: Path | None, handlers: list[logging.Handler]) -> None:
    """Add the handlers to the root logger and to ``handlers``, stderr first: a log may fail."""
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    logging.getLogger("difftransformer").setLevel(logging.INFO)

    def add(handler: logging.Handler) -> None:
        handlers.append(handler)
        handler.setFormatter(_LineFormatter())
        root.addHandler(handler)

    add(logging.StreamHandler(sys.stderr))
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        add(_LogFile(log, mode="w", encoding="utf-8"))


def _fault(error: Exception) -> SystemExit:
    logger.info("a fault of this program:", exc_info=error)
    logger.error("%s: %s (traceback above)", type(error).__name__, " ".join(str(error).split()))
    return SystemExit(1)


class _Terminated(SystemExit):
    def __str__(self) -> str:
        return "SIGTERM; the same command starts again where it can"


@contextmanager
def _termination() -> Iterator[None]:
    """Let SIGTERM end the job like an exit, so that its run is marked; training listens itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        raise _Terminated(128 + number)

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
