"""Device, precision and determinism of a training process: chosen explicitly, logged, recorded."""

import logging
import os

import torch

from difftransformer.config.training import TrainingConfig
from difftransformer.errors import BackendError
from difftransformer.models.device import choose_device, repeat_bits
from difftransformer.training.allocator import give_back_large_blocks, keep_freed_memory

logger = logging.getLogger(__name__)


def resolve_device(config: TrainingConfig) -> torch.device:
    """Choose the device to train on, and check that it has the precision asked for.

    Raises:
        BackendError: CUDA, or bf16 on it, was asked for and is not there.
    """
    device = choose_device(config.device, "training.device")
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
    """Pin the thread count, set up memory, choose deterministic kernels; return whether they are.

    The number of threads changes the order of sums and so the bits of a run: it is an argument,
    never what the machine happens to have.
    """
    torch.set_num_threads(threads)
    if device.type == "cpu" and config.backend == "eager":
        give_back_large_blocks()
    elif device.type == "cpu":
        keep_freed_memory()
    wanted = config.deterministic
    deterministic = device.type == "cpu" if wanted is None else wanted
    if deterministic and device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    repeat_bits(deterministic, compiled=config.compile)
    return deterministic
