"""The memory that is free for a process, and the refusal of a job that needs more."""

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
    """Compare what a job needs with what is free; log it.

    Args:
        needed: Bytes.
        device: Where it runs.
        job: What needs it, for messages.
        cure: What to do where it is too much.

    Raises:
        UserError: it is too much. DIFFTRANSFORMER_MEMORY_CHECK=off only logs it.
    """
    free = available_bytes(device)
    found = f"{job} needs about {needed / _GIB:.2f} GiB, {free / _GIB:.2f} GiB are free"
    logger.info("memory: %s", found)
    if needed > free and os.environ.get(VARIABLE) != "off":
        raise UserError(f"{found}: {cure}; {VARIABLE}=off tries it all the same")


def available_bytes(device: torch.device) -> float:
    """Return the memory a process can still get: of the GPU, or of the machine and its cgroup."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + unused)
    free = float(psutil.virtual_memory().available)
    for folder, limit, used in _groups():
        try:
            most, taken = ((folder / name).read_text().strip() for name in (limit, used))
            cached = _inactive_files((folder / "memory.stat").read_text())
        except OSError:
            continue  # a level without a limit, or one that a container does not show
        if most.isdecimal():
            free = min(free, int(most) - int(taken) + cached)
    return free


def _groups() -> Iterator[tuple[Path, str, str]]:
    """Folders of this process's cgroup and of all above it, with the files of limit and use."""
    try:
        lines = _OWN_CGROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if not controllers:
            mounted, files = _CGROUP, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            mounted, files = _CGROUP / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        own = mounted / place.lstrip("/")
        for folder in (own, *own.parents):
            if folder.is_relative_to(mounted):
                yield folder, *files


def _inactive_files(statistics: str) -> int:
    """Page cache that the kernel gives back when it is asked for memory."""
    found = (line.split() for line in statistics.splitlines())
    return sum(int(value) for name, value in found if name == "inactive_file")
