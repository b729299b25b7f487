"""Slurm: requeue this process's job, block its signals, start processes on its nodes."""

import logging
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from difftransformer.errors import BackendError, nearest

TIME_LIMIT_SIGNAL = "SIGUSR1"
"""Signal that Slurm sends a job before its time limit, as configured in `profiles/slurm`."""

logger = logging.getLogger(__name__)


def job_id() -> str | None:
    """Return the id of the Slurm job that this process belongs to; None outside of Slurm."""
    return os.environ.get("SLURM_JOB_ID")


def was_requeued() -> bool:
    """Return whether Slurm has requeued and restarted the job that this process belongs to."""
    return os.environ.get("SLURM_RESTART_COUNT", "0") != "0"


def requeue() -> bool:
    """Requeue the Slurm job that this process belongs to, and return whether Slurm accepted.

    The job keeps its id, so the workflow does not see a failure. Slurm ends the job's running
    processes, so call this last. Outside of Slurm, it does nothing and returns False.
    """
    id = job_id()
    if id is None:
        return False
    try:
        completed = subprocess.run(
            ["scontrol", "requeue", id], capture_output=True, text=True, timeout=60, check=False
        )
        refusal = completed.stderr.strip() if completed.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        refusal = str(error)
    if refusal:
        logger.warning("Slurm does not requeue job %s (%s): the workflow retries it", id, refusal)
        return False
    logger.info("Slurm job %s is requeued and resumes from its checkpoint", id)
    return True


def requeue_before_time_limit() -> None:
    """Install a signal handler that requeues this Slurm job when its time limit is near.

    It is for work that can be killed at any point and resumes. Call it in the main thread.
    """
    signal.signal(getattr(signal, TIME_LIMIT_SIGNAL), lambda _number, _frame: requeue())


@contextmanager
def block_signals(*more: signal.Signals) -> Iterator[None]:
    """Context manager: block the time limit's signal in child processes started in the block.

    Slurm sends the signal to all processes of a job. It is blocked, together with the signals
    ``more``, since children inherit blocked signals but not handlers.
    """
    numbers = {getattr(signal, TIME_LIMIT_SIGNAL), *more}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def require_partitions(names: Iterable[object]) -> None:
    """Check that Slurm has the given partitions.

    The check passes if Slurm does not list its partitions.

    Args:
        names: Names of partitions, or comma-separated lists of names.

    Raises:
        BackendError: A partition does not exist; the message lists those that exist.
    """
    partitions = {partition for name in names for partition in str(name).split(",")}
    if not partitions:
        return
    try:
        completed = subprocess.run(
            ["sinfo", "--noheader", "--all", "--format", "%R"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return
    existing = sorted({*completed.stdout.split()})
    if not existing or completed.returncode:
        return
    for name in sorted(partitions.difference(existing)):
        raise BackendError(
            f"slurm_partition={name}: Slurm has no such partition{nearest(name, existing)}"
        )


def nodes() -> int:
    """Return the number of nodes of this process's Slurm job; 1 outside of Slurm.

    Slurm is queried, since Snakemake's executors remove its variables from the environment.

    Raises:
        BackendError: The query failed.
    """
    id = job_id()
    if id is None:
        return 1
    try:
        completed = subprocess.run(
            ["squeue", "--noheader", "--jobs", id, "--format", "%D"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        text = completed.stdout.strip()
        if text.isdecimal():
            return int(text)
        refusal = completed.stderr.strip() or f"squeue printed {text!r}"
    except (OSError, subprocess.TimeoutExpired) as error:
        refusal = str(error)
    raise BackendError(
        f"the number of nodes of Slurm job {id} is unknown ({refusal}): unset SLURM_JOB_ID if this "
        "is not a job of Slurm"
    )


def on_each_node(count: int, words: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run a command once on each node of this Slurm job, and return the highest exit status.

    The command receives stop signals on all nodes: SIGTERM through `srun`, others from Slurm.

    Args:
        count: Number of nodes.
        words: The command with its arguments.
        variables: Environment variables in addition to those of this process.

    Raises:
        BackendError: The program `srun` cannot be started.
    """
    options = [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--mem=0"]
    # Share the resources of the running job step, and use all CPUs of the job.
    options += ["--overlap", "--cpu-bind=none", "--disable-status"]
    if cpus := os.environ.get("SLURM_CPUS_ON_NODE"):
        options.append(f"--cpus-per-task={cpus}")
    try:
        srun = subprocess.Popen(["srun", *options, *words], env={**os.environ, **variables})
    except OSError as error:
        raise BackendError(
            f"srun cannot be started ({error.strerror}): training on several nodes needs it"
        ) from error

    def pass_on(_number: int, _frame: FrameType | None) -> None:
        srun.send_signal(signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    return srun.wait()
