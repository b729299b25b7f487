"""The context in which a command runs a job: lock, log, tracking, provenance and exit status."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from difftransformer.errors import UserError
from difftransformer.machine import slurm
from difftransformer.machine.locks import open_lock, sign, wait_for_lock
from difftransformer.provenance.command_errors import report_errors
from difftransformer.provenance.environment import Environment, capture
from difftransformer.provenance.result import PerItemScores, Result, job_id, origin, write_result
from difftransformer.tracking.address import ROOT, VARIABLE, is_disk_ephemeral, resolve_uri
from difftransformer.tracking.history import KEY_METRIC
from difftransformer.tracking.sync import SyncConfig, live_sync
from difftransformer.tracking.tracker import NullTracker, RunTracker, Tracker

LOCK = "lock"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobIdentity:
    """Identity of a job: rule, run, seed and others, with a fingerprint (`job_fingerprint`)."""

    rule: str
    """Snakemake rule; also the name of the MLflow experiment and of the state folder."""
    scale: str
    run: str
    fingerprint: str
    seed: int | None = None
    suite: str | None = None
    upstream: Sequence[str] = ()
    threads: int = 1

    @property
    def job_id(self) -> str:
        """Id of the job in results and tables, the same for the same inputs."""
        subject = f"{self.run}-{self.suite}" if self.suite else self.run
        return job_id(self.rule, subject, self.seed, self.fingerprint)

    @property
    def name(self) -> str:
        """Name of the job within its rule, such as ``tiny/diff_v1/0``, without its fingerprint."""
        parts = (self.scale, self.run, self.seed, self.suite)
        return "/".join(str(part) for part in parts if part is not None)

    @property
    def description(self) -> str:
        """Description of the job in one line, which MLflow shows."""
        suite = f" of {self.suite}" if self.suite else ""
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"`{self.rule}`{suite}: {self.run}{seed}, at scale {self.scale}"

    def tags(self) -> dict[str, Any]:
        """Return the tags of the job's MLflow run: the identity and the environment of the job."""
        environment = capture(self.threads)
        names = ("rule", "scale", "run", "seed", "suite", "fingerprint")
        tags: dict[str, Any] = {name: getattr(self, name) for name in names}
        tags["upstream"] = " ".join(self.upstream) or None
        tags["mlflow.note.content"] = self.description
        tags |= {
            name: getattr(environment, name) for name in ("git_commit", "git_dirty", "threads")
        }
        tags["mlflow.source.git.commit"] = environment.git_commit
        tags |= {f"version.{name}": text for name, text in environment.versions.items()}
        tags |= hardware_tags(environment)
        return {name: value for name, value in tags.items() if value is not None}


def hardware_tags(environment: Environment) -> dict[str, Any]:
    """Return the tags of an MLflow run that describe the hardware in ``environment``."""
    return {f"hardware.{name}": value for name, value in environment.hardware.items()}


@dataclass(frozen=True)
class Job:
    """A running job: its identity, tracker and start."""

    identity: JobIdentity
    tracker: Tracker
    started: datetime

    def write_result(
        self,
        path: Path,
        kind: str,
        metrics: Mapping[str, float | None],
        settings: dict[str, Any],
        beside: Iterable[Path] = (),
        tracked: Mapping[str, float | None] | None = None,
        per_item: Mapping[str, PerItemScores] | None = None,
        environment: Environment | None = None,
    ) -> None:
        """Write the result file of this job, and track the file and its metrics.

        Args:
            path: The result file (JSON).
            kind: Kind of result, such as "training" or "evaluation".
            metrics: Metrics of the result.
            settings: Resolved settings of the job.
            beside: Other output files of the job, whose checksums are recorded.
            tracked: Metrics for tracking; None: ``metrics``.
            per_item: Scores per item, for metrics that are means over items.
            environment: Environment of the process that computed; None: of this process.
        """
        identity = self.identity
        provenance = origin(identity.fingerprint, started=self.started, threads=identity.threads)
        if environment is not None:
            provenance = provenance.model_copy(update=dict(environment))
            self.tracker.set_tags(hardware_tags(environment))
        result = Result(
            kind=kind,
            job_id=identity.job_id,
            scale=identity.scale,
            run=identity.run,
            seed=identity.seed or 0,
            suite=identity.suite,
            metrics=dict(metrics),
            per_item=dict(per_item or {}),
            settings=settings,
            provenance=provenance,
        )
        write_result(path, result, beside)
        values = metrics if tracked is None else tracked
        points = {name: value for name, value in values.items() if value is not None}
        self.tracker.log_metrics(points)
        if key := next((name for name in points if name in (per_item or points)), None):
            self.tracker.set_tags({KEY_METRIC: key})
        self.tracker.log_artifact(path)


@contextmanager
def run_context(
    identity: JobIdentity,
    *,
    state: Path,
    params: Mapping[str, Any],
    log: Path | None = None,
    uri: str | None = None,
    root: Path = ROOT,
) -> Iterator[Job]:
    """Context manager: lock, log and track the block as one job, and yield the job.

    Args:
        identity: Identity of the job.
        state: State folder of this job and fingerprint only. The job locks the parent folder, so
            that a job with older settings cannot write its result after one with newer settings.
        params: Resolved settings.
        log: Log file besides stderr; None: stderr only.
        uri: Address of the store; None: the default of `address.resolve_uri`.
        root: The results folder.

    Raises:
        SystemExit: The block raised any exception, which was logged as an ``error:`` line.
    """
    mode = "a" if slurm.was_requeued() else "w"  # keep the log of the attempts before the requeue
    with report_errors(log, mode=mode), _sigterm_as_exit(), ExitStack() as stack:
        store = resolve_uri(uri, root)
        stack.enter_context(exclusive(state))
        state.mkdir(exist_ok=True)
        names = (identity.rule, identity.name, identity.job_id)
        config = SyncConfig(root=root)
        run = start_run(*names, state, params, identity.tags(), store, config)
        yield Job(identity, stack.enter_context(run), datetime.now(UTC))


@contextmanager
def start_run(
    stage: str,
    name: str,
    job_id: str,
    state: Path,
    params: Mapping[str, Any],
    tags: Mapping[str, Any],
    store: str | None,
    config: SyncConfig | None = None,
) -> Iterator[Tracker]:
    """Context manager: track the block as an MLflow run, and yield its tracker.

    An exception ends the run as FAILED. SystemExit (of a job that can resume) and KeyboardInterrupt
    end it as KILLED. All exceptions propagate.

    Args:
        stage: Name of the experiment, which is the name of the rule: "pretrain", "evaluate", ...
        name: Name of the job within its stage, *without* its fingerprint, such as
            ``tiny/diff_v1/0``. Runs with the same name supersede each other.
        job_id: Id of the job, from `difftransformer.provenance.result.job_id`.
        state: State folder of this job and fingerprint only; a history in it is continued.
        params: Resolved settings; they may be nested.
        tags: Tags of the run: rule, scale, run, seed, suite, fingerprint, commit, upstream ids, ...
        store: Address of the store; None: nothing is tracked.
        config: Times of writing and sending, and the results folder.
    """
    if store is None:
        if is_disk_ephemeral() and not os.environ.get(VARIABLE, "").strip():
            logger.warning(
                "tracking is off: this disk is lost with the job, and no %s is set", VARIABLE
            )
        yield NullTracker()
        return
    config = config or SyncConfig()
    tracker = RunTracker(
        state, stage=stage, name=name, job_id=job_id, flush_every=config.live_every
    )
    with live_sync(state, store, config):
        status = "FAILED"
        try:
            tracker.log_params(params)
            tracker.set_tags(tags)
            tracker.flush()
            yield tracker
            status = "FINISHED"
        except (SystemExit, KeyboardInterrupt) as stop:
            succeeded = isinstance(stop, SystemExit) and stop.code in (None, 0)
            status = "FINISHED" if succeeded else "KILLED"
            raise
        finally:
            tracker.close(status)


class _Terminated(SystemExit):
    def __str__(self) -> str:
        return "SIGTERM; the same command resumes if it can"


@contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """Context manager: raise SystemExit on SIGTERM, so that the run gets a final status.

    Trainings replace this signal handler by their own.
    """
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


@contextmanager
def _requeue_while_waiting() -> Iterator[None]:
    """Context manager: requeue the job if its time limit is near; does nothing outside of Slurm."""
    if slurm.job_id() is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(getattr(signal, slurm.TIME_LIMIT_SIGNAL))
    slurm.requeue_before_time_limit()
    try:
        yield
    finally:
        signal.signal(getattr(signal, slurm.TIME_LIMIT_SIGNAL), before)


@contextmanager
def exclusive(state: Path) -> Iterator[None]:
    """Context manager: hold the lock of a job, after waiting for a process that holds it.

    All fingerprints of a job share its lock. The other process is a job of a killed workflow, or
    the same command in another terminal.

    Args:
        state: State folder of the job, which need not exist; the lock is in its parent folder.
    """
    descriptor, holder = open_lock(state.parent / LOCK)
    try:
        if holder is not None:
            logger.warning(
                "process %s is running this job (%s): waiting until it ends", holder, state.parent
            )
            with _requeue_while_waiting():
                wait_for_lock(descriptor)
        sign(descriptor)
        yield
    finally:
        os.close(descriptor)


def hold(path: Path, doing: str) -> int:
    """Lock the file ``path`` until this process ends, and return its file descriptor.

    Args:
        path: The lock file.
        doing: Activity of another process with the lock, for the error message.

    Raises:
        UserError: Another process holds the lock; the message has its process id and host.
    """
    descriptor, holder = open_lock(path)
    if holder is not None:
        os.close(descriptor)
        raise UserError(f"process {holder} is {doing}: wait for it or end it, then try again")
    sign(descriptor)
    return descriptor
