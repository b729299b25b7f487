"""Launch the processes of one training by `torchrun`, on several nodes of Slurm through `srun`."""

import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence

from difftransformer.errors import BackendError, ConfigError, UserError
from difftransformer.machine import gpus, slurm
from difftransformer.training.distributed import collective_timeout
from difftransformer.training.rendezvous import PEER_FAILED, launched_world_size

RENDEZVOUS = "DIFFTRANSFORMER_RENDEZVOUS"
"""Environment variable: number of nodes, and host and port of the first: `2 node17:29500`."""

_QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Environment variables that hide the stack trace of torch's store when a process ends."""

logger = logging.getLogger(__name__)


def is_launched() -> bool:
    """Return whether this process is one of several that `torchrun` started."""
    return launched_world_size() > 1


def launch(world_size: int, words: Sequence[str], on_gpus: bool) -> int:
    """Run a command of difftransformer as ``world_size`` processes; return the exit status.

    Stop signals reach all processes. The status is that of a failed process, if any.

    Args:
        world_size: Number of processes on all nodes.
        words: Arguments of the command line after `difftransformer`.
        on_gpus: Whether to reserve a GPU for each process.

    Raises:
        ConfigError: The processes cannot be divided evenly among the nodes.
        BackendError: The nodes do not find each other.
        UserError: There are fewer GPUs than processes, or a process was killed from outside.
    """
    rendezvous = os.environ.get(RENDEZVOUS, "").split()
    nodes = int(rendezvous[0]) if rendezvous else slurm.nodes()
    if world_size % nodes:
        raise ConfigError(
            f"training.world_size {world_size} is no multiple of the {nodes} nodes of this job: "
            "set it to a multiple, or request another number of nodes from Slurm"
        )
    if nodes > 1 and not rendezvous:
        logger.info("training in %d processes on %d nodes", world_size, nodes)
        command = [sys.executable, "-m", "difftransformer", *words]
        variables = {RENDEZVOUS: f"{nodes} {_free_address()}", **_QUIET}
        return slurm.on_each_node(nodes, command, variables)
    local_world_size = world_size // nodes
    if on_gpus:
        gpus.reserve(local_world_size)
    # Slurm signals every process of a job; the ranks handle it, and the launcher waits for them.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # --threads decides; torchrun would warn
    os.environ.update(_QUIET)
    options = [f"--nproc-per-node={local_world_size}", "--max-restarts=0", *_shutdown_timeout()]
    if nodes == 1:
        logger.info("training in %d processes", world_size)
        return _torchrun(world_size, [*options, "--standalone"], words)
    seconds = int(collective_timeout().total_seconds())
    options += [f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={rendezvous[1]}"]
    options += [f"--rdzv-id={slurm.job_id()}"]
    options += [f"--rdzv-conf=join_timeout={seconds},read_timeout={seconds}"]
    return _torchrun(world_size, options, words)


def _shutdown_timeout() -> list[str]:
    """Return torchrun's option for the time in which stopped processes can write a checkpoint.

    Its default is 30 s.
    """
    from torch.distributed.run import get_args_parser

    name = "--shutdown-timeout"
    is_supported = name in get_args_parser().format_help()  # not in older versions
    return [f"{name}={max(600, int(collective_timeout().total_seconds()))}"] if is_supported else []


def _torchrun(world_size: int, options: Sequence[str], words: Sequence[str]) -> int:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError
    from torch.distributed.run import parse_args, run

    for name in ("agent.server.api", "multiprocessing.api", "rendezvous.dynamic_rendezvous"):
        # Failures are reported below.
        logging.getLogger(f"torch.distributed.elastic.{name}").setLevel(logging.CRITICAL)
    try:
        arguments = parse_args([*options, "-m", "difftransformer"])  # type: ignore[no-untyped-call]
        arguments.training_script_args = [*words]  # parsed, `--log` would be one of its own options
        run(arguments)  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        rank, failure = min(
            error.failures.items(),
            key=lambda item: (item[1].exitcode == PEER_FAILED, item[1].timestamp),
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
    """Return the name of this host with a free port."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return f"{socket.gethostname()}:{listener.getsockname()[1]}"
