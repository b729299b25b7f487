"""Starting the processes of one training, by torch's own launcher, `torchrun`.

On one node it starts all of them; where Slurm has given several, `srun` starts it on each, and they
meet at the first.
"""

import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence

from difftransformer.errors import BackendError, ConfigError, UserError
from difftransformer.machine import gpus, slurm
from difftransformer.training.distributed import collective_timeout
from difftransformer.training.joining import LEFT, started_world

RENDEZVOUS = "DIFFTRANSFORMER_RENDEZVOUS"
"""Nodes, host and port, as the first node tells the others: `2 node17:29500`."""

_QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Of a process that is gone torch's store warns with the frames of its stack."""

logger = logging.getLogger(__name__)


def is_launched() -> bool:
    """Whether this is one of several processes that `torchrun` has started."""
    return started_world() > 1


def launch(world_size: int, words: Sequence[str], on_gpus: bool) -> int:
    """Run a command of ours as ``world_size`` processes; return its exit status.

    A stop of any kind reaches all of them; the status is that of the one that failed.

    Args:
        world_size: How many, on all nodes.
        words: The command line after `difftransformer`.
        on_gpus: Whether each is to have a GPU: they are taken here, for all of a node at once.

    Raises:
        ConfigError: The nodes cannot have as many processes each.
        BackendError: The nodes do not find each other.
        UserError: There are fewer GPUs; or a process was ended from outside.
    """
    told = os.environ.get(RENDEZVOUS, "").split()
    nodes = int(told[0]) if told else slurm.nodes()
    if world_size % nodes:
        raise ConfigError(
            f"training.world_size {world_size} is no multiple of the {nodes} nodes of this job: "
            "set it to a multiple, or request another number of nodes from Slurm"
        )
    if nodes > 1 and not told:
        logger.info("training in %d processes on %d nodes", world_size, nodes)
        command = [sys.executable, "-m", "difftransformer", *words]
        told_to_all = {RENDEZVOUS: f"{nodes} {_free_address()}", **_QUIET}
        return slurm.on_each_node(nodes, command, told_to_all)
    here = world_size // nodes
    if on_gpus:
        gpus.take(here)
    # Slurm signals every process of a job; the ranks listen, and who started them waits for them.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # said by --threads; torchrun would warn
    os.environ.update(_QUIET)
    options = [f"--nproc-per-node={here}", "--max-restarts=0", *_time_to_stop()]
    if nodes == 1:
        logger.info("training in %d processes", world_size)
        return _torchrun(world_size, [*options, "--standalone"], words)
    seconds = int(collective_timeout().total_seconds())
    options += [f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={told[1]}"]
    options += [f"--rdzv-id={slurm.job_id()}"]
    options += [f"--rdzv-conf=join_timeout={seconds},read_timeout={seconds}"]
    return _torchrun(world_size, options, words)


def _time_to_stop() -> list[str]:
    """Let processes that are told to stop end their step and write: torchrun kills after 30 s."""
    from torch.distributed.run import get_args_parser

    name = "--shutdown-timeout"
    known = name in get_args_parser().format_help()  # of newer versions
    return [f"{name}={max(600, int(collective_timeout().total_seconds()))}"] if known else []


def _torchrun(world_size: int, options: Sequence[str], words: Sequence[str]) -> int:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError
    from torch.distributed.run import parse_args, run

    for name in ("agent.server.api", "multiprocessing.api", "rendezvous.dynamic_rendezvous"):
        # What they say of an end we say ourselves.
        logging.getLogger(f"torch.distributed.elastic.{name}").setLevel(logging.CRITICAL)
    try:
        asked = parse_args([*options, "-m", "difftransformer"])  # type: ignore[no-untyped-call]
        asked.training_script_args = [*words]  # parsed, `--log` would be one of its own options
        run(asked)  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        rank, failure = min(
            error.failures.items(), key=lambda one: (one[1].exitcode == LEFT, one[1].timestamp)
        )
        if failure.exitcode < 0:
            name = signal.Signals(-failure.exitcode).name
            raise UserError(
                f"process {rank} of {world_size} was ended by {name}, and the others with it: the "
                "same call resumes from the last checkpoint"
            ) from None
        return int(failure.exitcode)
    except SignalException as stop:
        logger.warning("stopped: %s", stop.sigval.name)
        return os.EX_TEMPFAIL
    except RendezvousError as error:
        reason = " ".join(str(error).split()).partition(". ")[0] or type(error).__name__
        raise BackendError(
            f"{socket.gethostname()} does not find or has lost the other nodes of this training "
            f"({reason}): look at their logs and at firewalls, then start it again"
        ) from error
    return 0


def _free_address() -> str:
    """Return this host, the first of the job, with a port that is free here."""
    with socket.socket() as one:
        one.bind(("", 0))
        return f"{socket.gethostname()}:{one.getsockname()[1]}"
