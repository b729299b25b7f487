"""Which attention backend runs: named explicitly, or picked and logged."""

import logging
from importlib.util import find_spec
from typing import Any

import torch

from difftransformer.errors import BackendError

BACKENDS = ("eager", "sdpa", "flash_attn")
logger = logging.getLogger(__name__)


def choose_backend(name: str, device: torch.device | str, precision: Any = "fp32") -> str:
    """Return the backend to use; `auto` picks and logs, any other name is taken or refused.

    Args:
        name: "auto", "eager", "sdpa" or "flash_attn".
        device: Where the model runs.
        precision: "fp32" or "bf16"; flash-attn has no fp32 kernels.

    Raises:
        BackendError: If the backend cannot run here, with what to choose instead.
    """
    kind = torch.device(device).type
    if name == "auto":
        usable = kind == "cuda" and precision == "bf16" and find_spec("flash_attn")
        picked = "flash_attn" if usable else "sdpa"
        logger.info("backend auto: picked %s on %s", picked, kind)
        return picked
    if name not in BACKENDS:
        raise BackendError(f"training.backend: unknown backend '{name}'; allowed: auto, eager, sdpa, flash_attn")
    if name == "flash_attn":
        _require_flash_attn(kind, precision)
    return name


def _require_flash_attn(kind: str, precision: Any) -> None:
    if kind != "cuda":
        raise BackendError(f"training.backend: flash_attn needs CUDA, the device is {kind}; use sdpa")
    if precision != "bf16":
        raise BackendError("training.backend: flash_attn has no fp32 kernels; use precision bf16 or sdpa")
    if find_spec("flash_attn") is None:
        raise BackendError(
            "training.backend: flash_attn is not installed; pip install 'difftransformer[gpu]' or use sdpa"
        )
