"""Device, precision, memory allocator, determinism and random number generators of a process.

A training step on the CPU allocates what the previous one freed. By default glibc returns the large
blocks of activations to the kernel after each step, and the next step pays for zeroed pages: 4 to
9% of the CPU time of a small model's step (d_model 128, 2 and 4 layers, three paired runs each).
Keeping them leaves the peak memory as it is, with two exceptions. Attention maps of eager attention
are blocks of megabytes that fragment memory: 2 to 3 times the peak (d_model 256, 512 positions, 2
layers). The blocks of transformers' models differ more: 1.6 to 2.5 times (d_model 256, 4 layers, 8
sequences of 512); there returning them costs 40 to 70% of the CPU time.
"""

import ctypes
import logging
import os
import platform
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from difftransformer.config.training import TrainingConfig
from difftransformer.errors import BackendError
from difftransformer.machine.gpus import choose_device
from difftransformer.models.device import set_deterministic

logger = logging.getLogger(__name__)
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # M_* of malloc.h
_LARGE, _MOST_MAPPED = 2**20, 2**16


def resolve_device(config: TrainingConfig) -> torch.device:
    """Return the training device, after checking that it supports the precision.

    Raises:
        BackendError: CUDA, or bf16 on it, is requested and not available.
    """
    device = choose_device(config.device, "training.device")
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if (
        config.precision == "bf16"
        and device.type == "cuda"
        and not torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        raise BackendError(
            f"training.precision is bf16 but {torch.cuda.get_device_name()} has none: use fp32"
        )
    if config.precision == "bf16" and device.type == "cpu":
        logger.warning("training.precision bf16 on the CPU: slower than fp32 without bf16 units")
    return device


def prepare_process(config: TrainingConfig, device: torch.device, threads: int) -> bool:
    """Set the threads, allocator and determinism; return whether kernels are deterministic.

    The number of threads changes the order of sums and thus the exact result, so it does not depend
    on the machine.
    """
    torch.set_num_threads(threads)
    if device.type == "cpu" and config.backend == "eager":
        return_freed_memory()
    elif device.type == "cpu":
        keep_freed_memory()
    deterministic = config.deterministic
    if deterministic is None:
        deterministic = device.type == "cpu"
    if deterministic and device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    set_deterministic(deterministic, compiled=config.compile)
    return deterministic


def keep_freed_memory() -> None:
    """Let glibc's malloc keep freed memory for reuse; other allocators only log that they cannot.

    The peak stays reserved until the process ends.
    """
    # No block is mapped by itself, so that all can be kept; the heap is never trimmed.
    is_set = _set_malloc((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1))
    logger.info("memory is %skept between steps", "" if is_set else "not ")


def return_freed_memory() -> None:
    """Let glibc's malloc return large freed blocks to the kernel, to avoid fragmentation.

    New allocations then need new pages.
    """
    _set_malloc((_MMAP_MAX, _MOST_MAPPED), (_MMAP_THRESHOLD, _LARGE))


def _set_malloc(*options: tuple[int, int]) -> bool:
    """Set options of glibc's malloc; return whether it accepted them."""
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return all(libc.mallopt(option, value) == 1 for option, value in options)


def seed_everything(seed: int) -> None:
    """Seed the global random generators of Python, numpy and torch, including CUDA's."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def rng_tensors(device: torch.device) -> dict[str, Tensor]:
    """Return the states of torch's random generators by name, as byte tensors."""
    states = {"rng.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["rng.cuda"] = torch.cuda.get_rng_state(device)
    return states


def rng_state() -> dict[str, Any]:
    """Return the states of Python's and numpy's random generators as JSON values."""
    kind, keys, *position = np.random.get_state(legacy=True)
    return {"python": random.getstate(), "numpy": [kind, np.asarray(keys).tolist(), *position]}


def device_type_of(tensors: dict[str, Tensor]) -> str:
    """Return the type of the device for which `rng_tensors` returned ``tensors``."""
    return "cuda" if "rng.cuda" in tensors else "cpu"


def restore_rng(tensors: dict[str, Tensor], state: dict[str, Any], device: torch.device) -> None:
    """Restore the random generators from results of `rng_tensors` and `rng_state`."""
    torch.set_rng_state(tensors["rng.cpu"])
    if device.type == "cuda" and device_type_of(tensors) == "cuda":
        torch.cuda.set_rng_state(tensors["rng.cuda"], device)
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *position = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *position))
