"""Starting the processes of one training, by torch's own launcher, `torchrun`."""

import logging
import os
import signal
from collections.abc import Sequence

from difftransformer.errors import UserError
from difftransformer.machine import gpus
from difftransformer.training.joining import LEFT, started_world

logger = logging.getLogger(__name__)


def is_launched() -> bool:
    """Whether this is one of several processes that `torchrun` has started."""
    return started_world() > 1


def launch(world: int, words: Sequence[str], on_gpus: bool) -> int:
    """Run a command of ours as ``world`` processes of this machine; return its exit status.

    A stop of any kind reaches all of them; the status is that of the one that failed.

    Args:
        world: How many.
        words: The command line after `difftransformer`.
        on_gpus: Whether each is to have a GPU: they are taken here, for all of them at once.

    Raises:
        UserError: There are fewer GPUs; or a process was ended from outside.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    if on_gpus:
        gpus.take(world)
    # Slurm signals every process of a job; the ranks listen, and who started them waits for them.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # said by --threads; torchrun would warn
    options = ["--standalone", f"--nproc-per-node={world}", "--max-restarts=0"]
    for name in ("agent.server.api", "multiprocessing.api"):  # of what we say ourselves
        logging.getLogger(f"torch.distributed.elastic.{name}").setLevel(logging.CRITICAL)
    logger.info("training in %d processes", world)
    try:
        asked = parse_args([*options, "-m", "difftransformer", *words])  # type: ignore[no-untyped-call]
        run(asked)  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        failure = min(
            error.failures.values(), key=lambda one: (one.exitcode == LEFT, one.timestamp)
        )
        if failure.exitcode < 0:
            name = signal.Signals(-failure.exitcode).name
            raise UserError(
                f"process {failure.local_rank} of {world} was ended by {name}, and the others with "
                "it: the same call continues from the last checkpoint"
            ) from None
        return int(failure.exitcode)
    except SignalException as stop:
        logger.warning("stopped: %s", stop.sigval.name)
        return os.EX_TEMPFAIL
    return 0
