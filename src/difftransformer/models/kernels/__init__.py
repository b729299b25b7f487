"""Attention backends: `choose_backend` settles which one runs, `kernel` gives its operations."""

from __future__ import annotations

import logging
from typing import Any, Protocol

import torch
from torch import Tensor

from difftransformer.errors import BackendError, nearest
from difftransformer.extras import install
from difftransformer.models.kernels import blocked, by_card, cpu_dispatch, eager, flash, fused, sdpa

logger = logging.getLogger(__name__)


class Kernel(Protocol):
    """The three operations a backend offers.

    Shapes: B = batch, T = queries, S = keys, H = output heads, G = key/value heads (H a multiple of
    G; output head h uses key/value head h // (H / G)), d = head_dim, e = width of a value. Without
    a mask attention is causal and the last query sees the last key; with one (bool [B or 1, 1, T,
    S], True = may attend) the mask alone decides.
    """

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
    ) -> Tensor:
        """softmax(q k' scale) v: q [B, H, T, d], k [B, G, S, d], v [B, G, S, e] -> [B, T, H, e]."""

    def attention_with_lse(
        self, q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """As `attention`, and log(sum(exp(q k' scale))) of each row, [B, T, H], in float32.

        Both carry gradients: with them anything that joins a softmax's denominator, such as a
        sink s, is a factor sigmoid(lse - s) on the output.
        """

    def differential_attention(
        self, q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
    ) -> Tensor:
        """(softmax(q1 k1' scale) - lam softmax(q2 k2' scale)) v.

        q [B, 2H, T, d] and k [B, 2G, S, d] hold the pair of a head side by side, v [B, G, S, e],
        lam is a scalar -> [B, T, H, e].
        """


# Imported, not named by strings: the fingerprint of a job follows imports.
_KERNELS: dict[str, Kernel] = {
    "eager": eager,
    "blocked": blocked,
    "cpu_dispatch": cpu_dispatch,
    "sdpa": sdpa,
    "flash_attn": flash,
    "fused": fused,
    "by_card": by_card,
}
_NOT_INSTALLED = f"flash-attn is not installed; {install('gpu')}, or take sdpa"


def choose_backend(name: str, device: torch.device | str, precision: str = "fp32") -> str:
    """Settle which attention backend runs.

    Args:
        name: "eager", "blocked", "sdpa", "flash_attn", "fused", "cpu_dispatch" or "by_card"; "auto"
            picks the fastest and logs it. On the CPU that is cpu_dispatch, which calls blocked or
            sdpa by the number of positions. On CUDA it is by_card if the table in git has the GPU,
            else sdpa (PyTorch's kernels, cuDNN and flash-attn 2 among them). The others run only
            by name.
        device: Where the model runs.
        precision: "fp32" or "bf16".

    Returns:
        The name of a backend that can run here.

    Raises:
        BackendError: unknown, or not usable here; nothing else is tried.
    """
    kind = torch.device(device).type
    if name == "auto":
        on_gpu = "sdpa" if _table_obstacle(kind, precision) else "by_card"
        picked = "cpu_dispatch" if kind == "cpu" else on_gpu
        logger.info("backend auto: picked %s on %s in %s", picked, kind, precision)
        return picked
    kernel(name)
    if obstacle := _obstacle(name, kind, precision):
        raise BackendError(f"backend {name} cannot run: {obstacle}")
    return name


def kernel(name: str) -> Kernel:
    """Return the operations of a backend.

    Raises:
        BackendError: no backend of that name.
    """
    if name == "auto":
        raise BackendError("backend auto is not one yet: choose_backend says which it is here")
    if name not in _KERNELS:
        raise BackendError(f"unknown backend {name!r}{nearest(name, [*_KERNELS, 'auto'])}")
    return _KERNELS[name]


def recorded(name: str, precision: str) -> dict[str, Any]:
    """Return what results tell of a backend that runs: its name, and the table it goes by."""
    if name != "by_card":
        return {"backend": name}
    return {"backend": name, "backend_by_call": by_card.table(by_card.card(), precision)}


def _obstacle(name: str, device: str, precision: str) -> str | None:
    if name == "flash_attn":
        return _flash_obstacle(device, precision)
    if name == "fused":
        return fused.obstacle(device, precision)
    if name == "by_card":
        return _table_obstacle(device, precision)
    return None


def _table_obstacle(device: str, precision: str) -> str | None:
    if device != "cuda" or not torch.cuda.is_available():
        return f"it is for NVIDIA GPUs and the device is {device}; take sdpa or auto"
    card = by_card.card()
    if not by_card.knows(card, precision):
        return f"nobody has measured {card} in {precision}; take auto, or run benchmarks/gpu"
    for backend in sorted(by_card.backends(card, precision)):
        if found := _obstacle(backend, device, precision):
            return f"the table has {backend} for {card}, and {found}"
    return None


def _flash_obstacle(device: str, precision: str) -> str | None:
    if device != "cuda":
        return f"it needs an NVIDIA GPU and the device is {device}; take sdpa or auto"
    if (generation := flash.generation()) is None:
        return _NOT_INSTALLED
    if precision == "fp32":
        return "it computes in half precision only; set precision bf16, or take sdpa"
    needed = {2: (8, 0), 3: (9, 0), 4: (9, 0)}[generation]
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < needed:
        return (
            f"flash-attn {generation} needs compute capability {needed[0]}.{needed[1]}, "
            f"{torch.cuda.get_device_name()} has less; take sdpa"
        )
    return None
