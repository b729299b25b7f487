"""Reservation of GPUs: each job locks the GPUs that it uses, since Snakemake only counts GPUs.

If a scheduler such as Slurm assigns GPUs to one job, no lock is needed. GPUs that a scheduler
assigns to several jobs together are reserved here.
"""

import logging
import os
import re
import stat
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from difftransformer.errors import BackendError, UserError
from difftransformer.machine import slurm
from difftransformer.machine.locks import open_lock, sign, wait_for_lock

if TYPE_CHECKING:
    import torch

VISIBLE = "CUDA_VISIBLE_DEVICES"
RESERVED = "DIFFTRANSFORMER_GPUS_RESERVED"
"""Environment variable with a job's GPUs, for its child processes: they reserve no others."""
JOBS_PER_GPU = "DIFFTRANSFORMER_JOBS_PER_GPU"
"""Environment variable with the number of jobs that may use a GPU at a time. Jobs limited by the
launches of kernels can share a GPU at little cost. Each job checks the free memory."""

_BF16_PEAKS = {
    "H100 PCIe": 7.56e14,
    "H100 NVL": 8.35e14,
    "H200 NVL": 8.35e14,
    "H100": 9.89e14,
    "H200": 9.89e14,
    "A100": 3.12e14,
}
"""Peak dense bf16 FLOP/s by part of the GPU's name; the first match counts. Source: NVIDIA."""
_BANDWIDTHS = {
    "H100 PCIe": 2.0e12,
    "H100 NVL": 3.9e12,
    "H100": 3.35e12,
    "H200": 4.8e12,
    "A100-SXM4-80GB": 2.04e12,
    "A100 80GB PCIe": 1.94e12,
    "A100-SXM4-40GB": 1.56e12,
    "A100-PCIE-40GB": 1.56e12,
}
"""Memory bandwidth in bytes/s by part of the GPU's name; the first match counts. Source: NVIDIA."""
_POLL_SECONDS = 1.0

logger = logging.getLogger(__name__)


def bf16_peak(name: str) -> float | None:
    """Return the peak dense bf16 FLOP/s of a GPU by its name; None for an unknown model.

    Models are matched as whole words, so a GH200 is not matched as an H200.
    """
    return _by_name(_BF16_PEAKS, name)


def memory_bandwidth(name: str) -> float | None:
    """Return the memory bandwidth of a GPU in bytes/s by its name; None for an unknown model."""
    return _by_name(_BANDWIDTHS, name)


def _by_name(table: dict[str, float], name: str) -> float | None:
    values = (value for model, value in table.items() if re.search(rf"\b{model}\b", name))
    return next(values, None)


def visible_gpus() -> list[str]:
    """Return the ids of the GPUs in CUDA_VISIBLE_DEVICES; if it is not set, of all GPUs."""
    ids = os.environ.get(VISIBLE)
    if ids is not None:
        return [id.strip() for id in ids.split(",") if id.strip() not in {"", "-1"}]
    return [str(number) for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


def gpu_slots() -> int:
    """Return the number of single-GPU jobs that can run at the same time on the visible GPUs.

    Raises:
        UserError: DIFFTRANSFORMER_JOBS_PER_GPU is not a positive number.
    """
    return len(visible_gpus()) * _jobs_per_gpu()


def choose_device(name: str, setting: str, *, exclusive: bool = False) -> "torch.device":
    """Return the torch device of a job, and reserve a GPU for it if it may use one.

    "auto" selects CUDA if it is available, and the choice is logged. The GPU is reserved until this
    process ends (see `reserve`).

    Args:
        name: "cpu", "cuda" or "auto".
        setting: Name of the setting with this value, for messages.
        exclusive: Whether to reserve a whole GPU even if jobs may share GPUs.

    Raises:
        BackendError: ``name`` is "cuda" and torch finds no CUDA device.
    """
    import torch

    if name != "cpu":
        reserve(exclusive=exclusive)
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise BackendError(
            f"{setting} is cuda but torch sees no CUDA device: use cpu or auto, or install a CUDA "
            "build of torch"
        )
    device = torch.device("cuda" if has_cuda and name != "cpu" else "cpu")
    if name == "auto":
        logger.info("%s auto: picked %s", setting, device)
    return device


def reserve(count: int = 1, *, exclusive: bool = False) -> None:
    """Reserve GPUs for this process until it ends, waiting until enough of them are free.

    Sets CUDA_VISIBLE_DEVICES for this process and its children, so call it before CUDA is used.
    It does nothing without GPUs, or if a scheduler or the parent process has assigned GPUs.

    Args:
        count: Number of GPUs.
        exclusive: Whether to reserve a whole GPU even if jobs may share GPUs.

    Raises:
        UserError: Fewer than ``count`` GPUs are visible, the folder of the locks belongs to another
            user, or DIFFTRANSFORMER_JOBS_PER_GPU is not a positive number.
    """
    gpus, jobs_per_gpu = visible_gpus(), _jobs_per_gpu()
    slots = 1 if exclusive or count > 1 else jobs_per_gpu
    is_assigned = _scheduled() and len(gpus) == count and jobs_per_gpu == 1
    is_launched = "LOCAL_RANK" in os.environ  # by torchrun: rank n uses GPU n
    if not gpus or RESERVED in os.environ or is_assigned or is_launched:
        return
    if count > len(gpus):
        raise UserError(
            f"{count} GPUs are requested and {len(gpus)} are visible: lower training.world_size, "
            f"or list more in {VISIBLE}"
        )
    folder = _folder()
    # A queue lock: jobs that need one GPU cannot overtake a job that waits for several.
    queue, holder = open_lock(folder / "queue.lock")
    try:
        if holder is not None:
            logger.info("waiting for a GPU behind process %s", holder)
            wait_for_lock(queue)
        sign(queue)
        reserved = _reserve_free(folder, gpus, count, slots)
    finally:
        os.close(queue)
    os.environ[VISIBLE] = os.environ[RESERVED] = ",".join(reserved)
    logger.info("computing on GPU %s of %s", ",".join(reserved), ",".join(gpus))


def _reserve_free(folder: Path, gpus: list[str], count: int, slots: int) -> list[str]:
    """Lock ``count`` GPUs (or a slot on each), least used first, until this process ends."""
    reserved: list[str] = []
    logged: list[str] = []
    with ExitStack() as on_error:
        while True:
            holders = {gpu: _holders(folder, gpu) for gpu in gpus if gpu not in reserved}
            for gpu in sorted(holders, key=lambda gpu: len(holders[gpu])):
                if len(reserved) == count:
                    break
                if (lock := _free_lock(gpu, holders[gpu], slots)) is None:
                    continue
                descriptor, holder = open_lock(folder / lock)
                assert holder is None, holder  # other jobs wait in the queue
                sign(descriptor)
                on_error.callback(os.close, descriptor)
                reserved.append(gpu)
            if len(reserved) == count:
                on_error.pop_all()
                return reserved
            busy = [
                f"{gpu} (process {holder})"
                for gpu, by_lock in holders.items()
                for holder in by_lock.values()
                if gpu not in reserved
            ]
            if busy != logged:
                logged = busy
                logger.info("waiting for %d GPUs; busy: %s", count - len(reserved), ", ".join(busy))
            time.sleep(_POLL_SECONDS)


def _free_lock(gpu: str, holders: dict[str, str], slots: int) -> str | None:
    """Return the name of a free lock file of a GPU or of a slot on it; None if none is free."""
    exclusive = f"gpu-{gpu}.lock"
    if slots == 1:
        return None if holders else exclusive
    if exclusive in holders:
        return None
    shared = (f"gpu-{gpu}-{slot}.lock" for slot in range(slots))
    return next((lock for lock in shared if lock not in holders), None)


def _holders(folder: Path, gpu: str) -> dict[str, str]:
    """Return the processes that hold a GPU or a slot on it, by name of the lock file."""
    holders = {}
    for path in (folder / f"gpu-{gpu}.lock", *sorted(folder.glob(f"gpu-{gpu}-*.lock"))):
        descriptor, holder = open_lock(path)
        os.close(descriptor)
        if holder is not None:
            holders[path.name] = holder
    return holders


def _scheduled() -> bool:
    """Return whether a scheduler has assigned the visible GPUs, to this job alone or to several."""
    return slurm.job_id() is not None and VISIBLE in os.environ


def _jobs_per_gpu() -> int:
    text = os.environ.get(JOBS_PER_GPU, "1")
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"{JOBS_PER_GPU} is {text!r}: set it to a number of jobs, from 1")
    return int(text)


def _folder() -> Path:
    """Return the folder of this user's GPU locks, one per machine and scheduler allocation.

    GPUs of two allocations may have equal ids, since each allocation may number its GPUs from 0.
    """
    allocation = f"-{slurm.job_id()}" if _scheduled() else ""
    folder = Path(tempfile.gettempdir(), f"difftransformer-gpus-{os.getuid()}{allocation}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()  # other users can guess its name and create it first
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise UserError(
            f"{folder}: must be a folder of yours, writable only by you: remove it, or set TMPDIR"
        )
    return folder
