"""Attention backends, chosen explicitly: `choose_backend` names one, `kernel` loads it."""

from __future__ import annotations

import importlib.util
import logging
from importlib import import_module
from typing import Protocol, cast

from torch import Tensor

from difftransformer.errors import BackendError

_MODULES = {
    "eager": "difftransformer.models.kernels.eager",
    "sdpa": "difftransformer.models.kernels.sdpa",
    "flash_attn": "difftransformer.models.kernels.flash",
}
_log = logging.getLogger(__name__)


class Kernel(Protocol):
    """The two operations a backend offers.

    Shapes: B = batch, T = queries, S = keys, H = output heads, G = key/value heads (H a multiple of
    G; output head h uses key/value head h // (H / G)), d = head_dim, e = width of a value. Without
    a mask attention is causal and the last query sees the last key; with one (bool [B or 1, 1, T,
    S], True = may attend) the mask alone decides.
    """

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
    ) -> Tensor:
        """softmax(q k' scale) v: q [B, H, T, d], k [B, G, S, d], v [B, G, S, e] -> [B, T, H, e]."""
        ...

    def differential_attention(
        self, q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
    ) -> Tensor:
        """(softmax(q1 k1' scale) - lam softmax(q2 k2' scale)) v.

        q [B, T, H, 2, d] holds each head's two queries, k [B, G, S, 2d] its two keys side by side,
        v [B, G, S, 2d], lam a scalar -> [B, T, H, 2d].
        """
        ...


def choose_backend(name: str, device: str, precision: str = "fp32") -> str:
    """Settle which attention backend runs, log it, and return its name.

    Args:
        name: "auto", "eager", "sdpa" or "flash_attn".
        device: "cpu" or "cuda" (an index may follow).
        precision: "fp32" or "bf16"; flash_attn computes in half precision only.

    Raises:
        BackendError: the backend is unknown, or not usable here; nothing else is tried.
    """
    if name == "auto":
        usable = _flash_obstacle(device, precision) is None
        picked = "flash_attn" if usable else "sdpa"
        _log.info("attention backend: auto picked %s for %s, %s", picked, device, precision)
        return picked
    if name not in _MODULES:
        raise BackendError(f"backend {name!r} is unknown; choose one of auto, {', '.join(_MODULES)}")
    if name == "flash_attn" and (obstacle := _flash_obstacle(device, precision)):
        raise BackendError(f"backend flash_attn cannot run: {obstacle}")
    _log.info("attention backend: %s for %s, %s", name, device, precision)
    return name


def kernel(name: str) -> Kernel:
    """The backend's operations.

    Raises:
        BackendError: unknown name, or flash-attn is not installed.
    """
    if name not in _MODULES:
        raise BackendError(f"backend {name!r} is unknown; choose one of auto, {', '.join(_MODULES)}")
    if name == "flash_attn" and not _flash_installed():
        raise BackendError(f"backend flash_attn cannot run: {_NOT_INSTALLED}")
    return cast(Kernel, import_module(_MODULES[name]))


_NOT_INSTALLED = "flash-attn is not installed; pip install 'difftransformer[gpu]', or take sdpa"


def _flash_installed() -> bool:
    return importlib.util.find_spec("flash_attn") is not None


def _flash_obstacle(device: str, precision: str) -> str | None:
    if not device.startswith("cuda"):
        return f"it needs an NVIDIA GPU and the device is {device}; set backend: sdpa (or auto)"
    if not _flash_installed():
        return _NOT_INSTALLED
    if precision == "fp32":
        return "it computes in half precision; set precision: bf16, or backend: sdpa"
    return None
