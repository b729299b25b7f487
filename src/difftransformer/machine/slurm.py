"""What a job does about the scheduler that runs it."""

import logging
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from difftransformer.errors import BackendError, nearest

TIME_IS_NEARLY_OVER = "SIGUSR1"
"""The signal that `profiles/slurm` has Slurm send to a job some time before its limit."""

logger = logging.getLogger(__name__)


def job_id() -> str | None:
    """Return the id of the Slurm job that this process is part of, if it is."""
    return os.environ.get("SLURM_JOB_ID")


def was_requeued() -> bool:
    """Return whether Slurm has started this process's job before."""
    return os.environ.get("SLURM_RESTART_COUNT", "0") != "0"


def requeue() -> bool:
    """Put this process's own job back into Slurm's queue; return whether Slurm took it.

    The job keeps its id, so for the workflow it goes on and has failed at nothing. Slurm ends what
    still runs of it: call this last. Outside Slurm nothing happens.
    """
    id = job_id()
    if id is None:
        return False
    try:
        asked = subprocess.run(
            ["scontrol", "requeue", id], capture_output=True, text=True, timeout=60, check=False
        )
        refusal = asked.stderr.strip() if asked.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        refusal = str(error)
    if refusal:
        logger.warning("Slurm does not requeue job %s (%s): the workflow retries it", id, refusal)
        return False
    logger.info("Slurm job %s is back in the queue and goes on from its checkpoint", id)
    return True


def requeue_in_time() -> None:
    """Have this process's own job put back into the queue when its time is nearly over.

    For work that may be ended anywhere and goes on from there; in the main thread. Slurm ends what
    runs, and starts it again.
    """
    signal.signal(getattr(signal, TIME_IS_NEARLY_OVER), lambda _number, _frame: requeue())


@contextmanager
def block_signals(*others: signal.Signals) -> Iterator[None]:
    """Start processes that never hear that the time is nearly over, or ``others``: they would end.

    All processes of a job are told; a handler is this process's alone, what is blocked is not.
    """
    numbers = {getattr(signal, TIME_IS_NEARLY_OVER), *others}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def require_partitions(names: Iterable[object]) -> None:
    """Refuse partitions, or lists of them with commas, that this machine's Slurm does not have.

    Where it does not say which it has, nothing is refused.

    Raises:
        BackendError: One is not there; names those that are.
    """
    wanted = {one for name in names for one in str(name).split(",")}
    if not wanted:
        return
    try:
        asked = subprocess.run(
            ["sinfo", "--noheader", "--all", "--format", "%R"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return
    there = sorted({*asked.stdout.split()})
    for name in sorted(wanted.difference(there) if there and asked.returncode == 0 else ()):
        raise BackendError(
            f"slurm_partition={name}: Slurm has no such partition{nearest(name, there)}"
        )


def nodes() -> int:
    """Return on how many nodes this process's own job is; 1 outside Slurm.

    The job is asked for, not the environment: executors leave that out of what a job inherits.

    Raises:
        BackendError: Slurm does not say.
    """
    id = job_id()
    if id is None:
        return 1
    try:
        asked = subprocess.run(
            ["squeue", "--noheader", "--jobs", id, "--format", "%D"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        said = asked.stdout.strip()
        if said.isdecimal():
            return int(said)
        refusal = asked.stderr.strip() or f"squeue says {said!r}"
    except (OSError, subprocess.TimeoutExpired) as error:
        refusal = str(error)
    raise BackendError(
        f"Slurm does not say on how many nodes job {id} is ({refusal}): unset SLURM_JOB_ID where "
        "this is no job of Slurm's"
    )


def on_each_node(count: int, words: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run a command once on each node of this process's own job; return the highest exit status.

    A stop reaches all of them: SIGTERM by way of `srun`, the others from Slurm itself.

    Args:
        count: How many nodes.
        words: The command.
        variables: Of the environment, beside those that there are.

    Raises:
        BackendError: There is no `srun`.
    """
    options = [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--mem=0"]
    # Whatever step this is in, and all processors that the job has: its processes share them.
    options += ["--overlap", "--cpu-bind=none", "--disable-status"]
    if cpus := os.environ.get("SLURM_CPUS_ON_NODE"):
        options.append(f"--cpus-per-task={cpus}")
    try:
        started = subprocess.Popen(["srun", *options, *words], env={**os.environ, **variables})
    except OSError as error:
        raise BackendError(
            f"srun cannot be started ({error.strerror}): it starts a training on several nodes"
        ) from error

    def pass_on(_number: int, _frame: FrameType | None) -> None:
        started.send_signal(signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    return started.wait()
