"""Reservation of GPUs: each job locks its own, since Snakemake counts them without ids.

A scheduler such as Slurm that assigns a job its GPUs is trusted. GPUs that it assigns to many jobs
together are reserved here.
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
"""Environment variable for the child processes of a job: they share its GPUs and reserve none."""
JOBS_PER_GPU = "DIFFTRANSFORMER_JOBS_PER_GPU"
"""Environment variable: jobs per GPU at a time. Jobs whose steps are bound by kernel launches
can share a GPU at little cost; each checks the free memory."""

_BF16_PEAKS = {
    "H100 PCIe": 7.56e14,
    "H100 NVL": 8.35e14,
    "H200 NVL": 8.35e14,
    "H100": 9.89e14,
    "H200": 9.89e14,
    "A100": 3.12e14,
}
"""Peak dense bf16 FLOP/s by model; the first match counts. Source: NVIDIA's data sheets."""
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
"""Memory bandwidth in bytes/s, as in `_BF16_PEAKS`."""
_POLL_SECONDS = 1.0

logger = logging.getLogger(__name__)


def bf16_peak(name: str) -> float | None:
    """Return the peak FLOP/s of a GPU in bf16 by its name; None for models without an entry.

    Names match as whole words: a GH200 is not an H200.
    """
    return _by_name(_BF16_PEAKS, name)


def memory_bandwidth(name: str) -> float | None:
    """Return the memory bandwidth of a GPU in bytes/s, as `bf16_peak`."""
    return _by_name(_BANDWIDTHS, name)


def _by_name(table: dict[str, float], name: str) -> float | None:
    values = (value for model, value in table.items() if re.search(rf"\b{model}\b", name))
    return next(values, None)


def visible_gpus() -> list[str]:
    """Return the ids of the visible GPUs: those in CUDA_VISIBLE_DEVICES, or all."""
    ids = os.environ.get(VISIBLE)
    if ids is not None:
        return [id.strip() for id in ids.split(",") if id.strip() not in {"", "-1"}]
    return [str(number) for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


def gpu_slots() -> int:
    """Return the number of single-GPU jobs that can run at a time.

    Raises:
        UserError: DIFFTRANSFORMER_JOBS_PER_GPU is no positive number.
    """
    return len(visible_gpus()) * _jobs_per_gpu()


def choose_device(name: str, setting: str, *, exclusive: bool = False) -> "torch.device":
    """Return the device of a job; ``auto`` picks CUDA if it is available, and logs the choice.

    A GPU is reserved for this process until it ends, see `reserve`.

    Args:
        name: "cpu", "cuda" or "auto".
        setting: Name of the setting, for messages.
        exclusive: Whether to reserve a whole GPU even if jobs share GPUs.

    Raises:
        BackendError: ``name`` is "cuda" and torch sees no CUDA device.
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
    """Reserve ``count`` GPUs for this process until it ends, waiting until they are free.

    Sets CUDA_VISIBLE_DEVICES for this process and its children: call it before CUDA is used.
    Without GPUs, or if a scheduler or the parent process has assigned them, it does nothing.

    Args:
        count: Number of GPUs.
        exclusive: Whether to reserve a whole GPU even if jobs share GPUs.

    Raises:
        UserError: There are fewer GPUs, the folder of the locks belongs to another user, or
            DIFFTRANSFORMER_JOBS_PER_GPU is no positive number.
    """
    gpus, jobs_per_gpu = visible_gpus(), _jobs_per_gpu()
    slots = 1 if exclusive or count > 1 else jobs_per_gpu
    is_assigned = _scheduled() and len(gpus) == count and jobs_per_gpu == 1
    is_launched = "LOCAL_RANK" in os.environ  # by torchrun: each rank uses the GPU of its number
    if not gpus or RESERVED in os.environ or is_assigned or is_launched:
        return
    if count > len(gpus):
        raise UserError(
            f"{count} GPUs are requested and {len(gpus)} are visible: lower training.world_size, "
            f"or list more in {VISIBLE}"
        )
    folder = _folder()
    # A queue: a job that waits for several GPUs is not overtaken by jobs that need one.
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
    """Lock ``count`` GPUs, or a slot on each, the least used first, until the process ends."""
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
    """Return the name of a free lock of a GPU, or of a slot on it; None without one."""
    exclusive = f"gpu-{gpu}.lock"
    if slots == 1:
        return None if holders else exclusive
    if exclusive in holders:
        return None
    shared = (f"gpu-{gpu}-{slot}.lock" for slot in range(slots))
    return next((lock for lock in shared if lock not in holders), None)


def _holders(folder: Path, gpu: str) -> dict[str, str]:
    """Return the processes that hold a GPU or a slot on it, by lock."""
    holders = {}
    for path in (folder / f"gpu-{gpu}.lock", *sorted(folder.glob(f"gpu-{gpu}-*.lock"))):
        descriptor, holder = open_lock(path)
        os.close(descriptor)
        if holder is not None:
            holders[path.name] = holder
    return holders


def _scheduled() -> bool:
    """Return whether a scheduler has assigned the visible GPUs, to this job or to several."""
    return slurm.job_id() is not None and VISIBLE in os.environ


def _jobs_per_gpu() -> int:
    text = os.environ.get(JOBS_PER_GPU, "1")
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"{JOBS_PER_GPU} is {text!r}: set it to a number of jobs, from 1")
    return int(text)


def _folder() -> Path:
    """Return the folder of this user's locks on this machine, one per allocation of a scheduler.

    GPUs of two allocations may have the same ids: each can count its own from 0.
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
