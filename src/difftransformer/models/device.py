"""Where a job computes, in which precision, and whether it gives the same bits each time."""

import logging

import torch

from difftransformer.errors import BackendError
from difftransformer.machine import gpus

logger = logging.getLogger(__name__)


def choose_device(name: str, place: str, *, alone: bool = False) -> torch.device:
    """Return the device of a job; ``auto`` takes CUDA where there is one and says so.

    A GPU is then this process's own, see `gpus.take`.

    Args:
        name: "cpu", "cuda" or "auto".
        place: Setting that says so, for messages.
        alone: Whether no other job may compute on it, where jobs share cards.

    Raises:
        BackendError: CUDA was asked for and is not there.
    """
    if name != "cpu":
        gpus.take(alone=alone)
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise BackendError(
            f"{place} is cuda but torch sees no CUDA device: use cpu or auto, or install a CUDA "
            "build of torch"
        )
    device = torch.device("cuda" if has_cuda and name != "cpu" else "cpu")
    if name == "auto":
        logger.info("%s auto: picked %s", place, device)
    return device


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the context of a precision: "bf16" computes products in it, "fp32" changes nothing."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def repeat_bits(deterministic: bool, *, compiled: bool = False) -> None:
    """Allow only operations that give the same bits each time, or any.

    Args:
        deterministic: Whether others raise.
        compiled: Whether inductor must know, too: it is imported then, which takes 3 s.
    """
    if compiled:
        torch.use_deterministic_algorithms(deterministic)
    else:
        torch.set_deterministic_debug_mode("error" if deterministic else "default")
    # Filling every fresh tensor with NaN only unmasks reads of uninitialised memory; it costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
