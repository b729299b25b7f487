"""Attention backends, chosen explicitly: `choose_backend` settles the name, `kernel` gives the operations."""

from __future__ import annotations

import importlib.util
import logging
from typing import Protocol

import torch
from torch import Tensor

from difftransformer.config.validation import nearest
from difftransformer.errors import BackendError
from difftransformer.models.kernels import eager, flash, sdpa

logger = logging.getLogger(__name__)


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


# Imported, not named by strings: the fingerprint of a job follows imports.
_KERNELS: dict[str, Kernel] = {"eager": eager, "sdpa": sdpa, "flash_attn": flash}
_NOT_INSTALLED = "flash-attn is not installed; pip install 'difftransformer[gpu]', or take sdpa"


def choose_backend(name: str, device: torch.device | str, precision: str = "fp32") -> str:
    """Settle which attention backend runs, log it, and return its name.

    Args:
        name: "auto", "eager", "sdpa" or "flash_attn".
        device: Where the model runs.
        precision: "fp32" or "bf16"; flash_attn computes in half precision only.

    Raises:
        BackendError: the backend is unknown, or not usable here; nothing else is tried.
    """
    kind = torch.device(device).type
    obstacle = _flash_obstacle(kind, precision)
    if name == "auto":
        picked = "sdpa" if obstacle else "flash_attn"
        logger.info("backend auto: picked %s on %s in %s", picked, kind, precision)
        return picked
    kernel(name)
    if name == "flash_attn" and obstacle:
        raise BackendError(f"backend flash_attn cannot run: {obstacle}")
    return name


def kernel(name: str) -> Kernel:
    """The operations of a backend.

    Raises:
        BackendError: no backend of that name.
    """
    if name not in _KERNELS:
        raise BackendError(f"unknown backend {name!r}{nearest(name, [*_KERNELS, 'auto'])}")
    return _KERNELS[name]


def _flash_obstacle(device: str, precision: str) -> str | None:
    if device != "cuda":
        return f"it needs an NVIDIA GPU and the device is {device}; take sdpa or auto"
    if importlib.util.find_spec("flash_attn") is None:
        return _NOT_INSTALLED
    if precision == "fp32":
        return "it computes in half precision only; set precision bf16, or take sdpa"
    return None
