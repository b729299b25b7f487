"""Free memory of a device, and the check that a job's memory estimate fits into it."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

from difftransformer.errors import UserError

logger = logging.getLogger(__name__)

VARIABLE = "DIFFTRANSFORMER_MEMORY_CHECK"
_CGROUP, _OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_GIB = 2**30


def require_room(needed: float, device: torch.device, job: str, cure: str) -> None:
    """Check that enough memory for a job is free on its device, and log both amounts.

    Args:
        needed: Estimated memory of the job in bytes.
        device: Device of the job.
        job: Name of the job for messages.
        cure: Advice for the error message.

    Raises:
        UserError: The memory does not suffice. DIFFTRANSFORMER_MEMORY_CHECK=off disables the error.
    """
    free = available_bytes(device)
    message = f"{job} needs about {needed / _GIB:.2f} GiB, {free / _GIB:.2f} GiB are free"
    logger.info("memory: %s", message)
    if needed > free and os.environ.get(VARIABLE) != "off":
        raise UserError(f"{message}: {cure}; {VARIABLE}=off skips this check")


def available_bytes(device: torch.device) -> float:
    """Return the free memory of a GPU, or of the machine within its cgroup limits, in bytes."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + unused)
    free = float(psutil.virtual_memory().available)
    for folder, *names in _cgroups():
        try:
            limit, used = ((folder / name).read_text().strip() for name in names)
            cached = _inactive_files((folder / "memory.stat").read_text())
        except OSError:
            continue  # a level without a limit, or hidden by a container
        if limit.isdecimal():
            free = min(free, int(limit) - int(used) + cached)
    return free


def _cgroups() -> Iterator[tuple[Path, str, str]]:
    """Yield this process's cgroup folder and its parents, each with its limit and usage files."""
    try:
        lines = _OWN_CGROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mounted, files = _CGROUP, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            mounted, files = _CGROUP / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        cgroup = mounted / path.lstrip("/")
        for folder in (cgroup, *cgroup.parents):
            if folder.is_relative_to(mounted):
                yield folder, *files


def _inactive_files(statistics: str) -> int:
    """Return the page cache that the kernel can reclaim in bytes, from the text of memory.stat."""
    rows = (line.split() for line in statistics.splitlines())
    return sum(int(value) for name, value in rows if name == "inactive_file")
