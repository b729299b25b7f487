"""What a job does about the scheduler that runs it."""

import logging
import os
import subprocess

TIME_IS_NEARLY_OVER = "SIGUSR1"
"""The signal that `profiles/slurm` has Slurm send to a job some time before its limit."""

logger = logging.getLogger(__name__)


def job_id() -> str | None:
    """Return the id of the Slurm job that this process is part of, if it is."""
    return os.environ.get("SLURM_JOB_ID")


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
