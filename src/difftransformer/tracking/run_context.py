"""The context in which a command runs a job: its lock, log, tracking, provenance, and its end.

Locks go with their process: the kernel frees them however it ends.
"""

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
from difftransformer.provenance.environment import Environment, capture
from difftransformer.provenance.reporting import reporting
from difftransformer.provenance.result import Result, Units, job_id, origin, write_result
from difftransformer.tracking.address import ROOT, VARIABLE, disk_passes, resolve_uri
from difftransformer.tracking.history import KEY_METRIC
from difftransformer.tracking.sync import LiveSync, SyncConfig
from difftransformer.tracking.tracker import NullTracker, RunTracker, Tracker

LOCK = "lock"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobIdentity:
    """Which job this is; the fingerprint comes from `fingerprint.job_fingerprint`."""

    rule: str
    """Rule of the workflow, which names the experiment and the state folder, too."""
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
        return job_id(self.rule, subject, self.seed, self.fingerprint)

    @property
    def name(self) -> str:
        """The job among all of its rule, whatever its fingerprint."""
        parts = (self.scale, self.run, self.seed, self.suite)
        return "/".join(str(part) for part in parts if part is not None)

    @property
    def description(self) -> str:
        """One line on the job, for who browses."""
        of = f" of {self.suite}" if self.suite else ""
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"`{self.rule}`{of}: {self.run}{seed}, at scale {self.scale}"

    def tags(self) -> dict[str, Any]:
        """Labels of the MLflow run: the identity and the environment."""
        environment = capture(self.threads)
        own = ("rule", "scale", "run", "seed", "suite", "fingerprint")
        tags: dict[str, Any] = {name: getattr(self, name) for name in own}
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
    """Labels of the MLflow run that say on what it ran."""
    return {f"hardware.{name}": value for name, value in environment.hardware.items()}


@dataclass(frozen=True)
class Job:
    """A running job."""

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
        units: Mapping[str, Units] | None = None,
        environment: Environment | None = None,
    ) -> None:
        """Write the result file of this job, and track its metrics, or some, and the file.

        ``environment`` is of the process that computed, where this one did not.
        """
        identity = self.identity
        made = origin(identity.fingerprint, started=self.started, threads=identity.threads)
        if environment is not None:
            made = made.model_copy(update=dict(environment))
            self.tracker.set_tags(hardware_tags(environment))
        result = Result(
            kind=kind,
            job_id=identity.job_id,
            scale=identity.scale,
            run=identity.run,
            seed=identity.seed or 0,
            suite=identity.suite,
            metrics=dict(metrics),
            units=dict(units or {}),
            settings=settings,
            provenance=made,
        )
        write_result(path, result, beside)
        points = metrics if tracked is None else tracked
        known = {name: value for name, value in points.items() if value is not None}
        self.tracker.log_metrics(known)
        if key := next((name for name in known if name in (units or known)), None):
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
    """Run the block as one job.

    Args:
        identity: Which job it is.
        state: Folder that belongs to this job and fingerprint alone. The job holds the lock of the
            folder around it, so that one of older settings cannot publish after one of newer.
        params: Resolved settings.
        log: File that gets the log beside stderr.
        uri: Address of the store, see `address.resolve_uri`.
        root: The results folder.

    Raises:
        SystemExit: in place of a `UserError`, a full disk and the like, and of any other
            exception, after their ``error:`` line.
    """
    mode = "a" if slurm.was_requeued() else "w"  # what happened before it was
    with reporting(log, mode=mode), _termination(), ExitStack() as stack:
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
    """Track the block as a run; its end decides the run's status.

    Args:
        stage: Names the experiment, as the rule does: "pretrain", "evaluate", ...
        name: The job among all of its stage, *without* its fingerprint, such as
            ``tiny/diff_v1/0``: runs of one name supersede each other.
        job_id: See `difftransformer.provenance.result.job_id`.
        state: Folder of this job and fingerprint alone; a job that finds a history there continues
            its run.
        params: Resolved settings, may be nested.
        tags: Labels: rule, scale, run, seed, suite, fingerprint, commit, upstream ids, ...
        store: Address of the store; None: nothing is tracked.
        config: When to write and to send, and the results folder.

    An exception ends the run as FAILED; SystemExit (a stop that can be continued) and
    KeyboardInterrupt as KILLED. Both pass on.
    """
    if store is None:
        if disk_passes() and not os.environ.get(VARIABLE, "").strip():
            logger.warning("tracking is off: this disk goes with the job, no %s is set", VARIABLE)
        yield NullTracker()
        return
    config = config or SyncConfig()
    live = LiveSync(state, store, config)
    tracker = RunTracker(
        state,
        stage=stage,
        name=name,
        job_id=job_id,
        on_flush=live.start_when_due,
        flush_every=config.live_every,
        system_every=config.system_every,
    )
    tracker.log_params(params)
    tracker.set_tags(tags)
    tracker.flush()
    status = "FAILED"
    try:
        yield tracker
        status = "FINISHED"
    except (SystemExit, KeyboardInterrupt) as stop:
        whole = isinstance(stop, SystemExit) and stop.code in (None, 0)
        status = "FINISHED" if whole else "KILLED"
        raise
    finally:
        tracker.close(status)
        live.finish()


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


@contextmanager
def _requeued_in_time() -> Iterator[None]:
    """Hear of Slurm that the time is nearly over while the block waits; outside of it nothing."""
    if slurm.job_id() is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(getattr(signal, slurm.TIME_IS_NEARLY_OVER))
    slurm.requeue_in_time()
    try:
        yield
    finally:
        signal.signal(getattr(signal, slurm.TIME_IS_NEARLY_OVER), before)


@contextmanager
def exclusive(state: Path) -> Iterator[None]:
    """Hold the lock of a job, whatever its fingerprint, waiting for who has it.

    That is a job left over from a workflow that was killed, or the same command in another
    terminal; behind one of the same settings there is little left to do.

    Args:
        state: The job's folder, which need not be there; the lock lies beside it.
    """
    descriptor, holder = open_lock(state.parent / LOCK)
    try:
        if holder is not None:
            logger.warning(
                "process %s is doing this job (%s): waiting until it ends", holder, state.parent
            )
            with _requeued_in_time():
                wait_for_lock(descriptor)
        sign(descriptor)
        yield
    finally:
        os.close(descriptor)


def hold(path: Path, doing: str) -> int:
    """Take the lock ``path`` until this process ends; returns its descriptor.

    Raises:
        UserError: another process has it; the line names it, its host and what it is ``doing``.
    """
    descriptor, holder = open_lock(path)
    if holder is not None:
        os.close(descriptor)
        raise UserError(f"process {holder} is {doing}: wait for it or end it, then try again")
    sign(descriptor)
    return descriptor
