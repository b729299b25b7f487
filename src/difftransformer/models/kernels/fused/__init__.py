"""Differential attention in one pass of a Triton kernel, both maps at once, and plain attention.

The kernels run on NVIDIA GPUs from compute capability 8.0 in half precision, with sums in float32,
and for tests on a CPU in Triton's interpreter (TRITON_INTERPRET=1). Everything that both maps need
is computed once. With values of 2d, a head needs 6 matrix multiplications of T x T x d in the
forward pass and 10 to 16 in the backward pass (`tiles.BACKWARD`). Two calls of a kernel for one map
need at best 6 and 14, with padding 8 and 20. Shapes are those of `models.kernels.Kernel`.
"""

import importlib.util
import math
import os

import torch
from torch import Tensor

from difftransformer.errors import BackendError
from difftransformer.models.kernels import sdpa
from difftransformer.models.kernels.fused.operations import fused_attention
from difftransformer.models.kernels.fused.tiles import kernel_for

NEEDED = (8, 0)
"""Minimum compute capability; earlier tensor cores have no bfloat16."""


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """Compute softmax attention (`Kernel.attention`) with the fused kernels.

    A single query, as in decoding, is computed by `sdpa`.

    Raises:
        BackendError: Unsupported device, dtype or width.
    """
    if q.shape[2] == 1:
        return sdpa.attention(q, k, v, scale=scale, mask=mask)
    return _fused(q, k, v, None, scale, mask)[0]


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute softmax attention and its log-sum-exp (`Kernel.attention_with_lse`).

    A single query is computed by `sdpa`.

    Raises:
        BackendError: Unsupported device, dtype or width.
    """
    if q.shape[2] == 1:
        return sdpa.attention_with_lse(q, k, v, scale=scale, mask=mask)
    out, lse = _fused(q, k, v, None, scale, mask)
    return out, lse[0].transpose(1, 2) * math.log(2)


def differential_attention(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """Compute differential attention (`Kernel.differential_attention`) with the fused kernels.

    A single query is computed by `sdpa`.

    Raises:
        BackendError: Unsupported device, dtype or width.
    """
    if q.shape[2] == 1:
        return sdpa.differential_attention(q, k, v, lam, scale=scale, mask=mask)
    return _fused(q, k, v, lam, scale, mask)[0]


def unavailable_reason(device: str, precision: str) -> str | None:
    """Return why the fused kernels cannot run with this device and precision; None if they can."""
    if device == "cpu" and interpreted():
        return None
    if device != "cuda":
        return f"it needs an NVIDIA GPU and the device is {device}; use sdpa or auto"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (it comes with torch for CUDA on Linux); use sdpa"
    if precision == "fp32":
        return "it computes in half precision only; set precision bf16, or use sdpa"
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < NEEDED:
        return (
            f"it needs compute capability {NEEDED[0]}.{NEEDED[1]}, "
            f"{torch.cuda.get_device_name()} has less; use sdpa"
        )
    return None


def interpreted() -> bool:
    """Return whether Triton interprets kernels in Python, as needed to run them on a CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _fused(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor | None, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    _check_dtypes(q, k, v)
    _check_shapes(q, k, lam, mask)
    kernel_for("forward", 1 if lam is None else 2, q.shape[-1], v.shape[-1])
    tensors = (x for x in (q, k, v, lam) if x is not None)
    needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    out, _, lse = fused_attention(q, k, v, lam, mask, scale, needs_grad)
    return out, lse


def _check_dtypes(q: Tensor, k: Tensor, v: Tensor) -> None:
    half = (torch.bfloat16, torch.float16)
    supported = {"cuda": half, "meta": half, "cpu": (torch.float32, torch.float16)}
    if q.device.type == "cpu" and not interpreted():
        supported.pop("cpu")
    if q.dtype not in supported.get(q.device.type, ()) or not q.dtype == k.dtype == v.dtype:
        raise BackendError(
            f"backend fused computes in half precision on CUDA, got {q.dtype}, {k.dtype} and "
            f"{v.dtype} on {q.device.type}; set precision bf16 and device cuda, or use sdpa"
        )


def _check_shapes(q: Tensor, k: Tensor, lam: Tensor | None, mask: Tensor | None) -> None:
    """Raise for inputs that the kernels would read incorrectly or out of bounds."""
    B, T, S = len(q), q.shape[2], k.shape[2]
    if lam is not None and lam.ndim:
        raise BackendError(
            f"backend fused takes one lambda for all heads, got {[*lam.shape]}; use sdpa"
        )
    if mask is None and T > S:
        raise BackendError(
            f"backend fused takes {T} queries of {S} keys with a mask only: some would attend to "
            "no key; use eager"
        )
    if mask is not None and mask.shape not in ((1, 1, T, S), (B, 1, T, S)):
        raise BackendError(
            f"backend fused takes a mask [{B} or 1, 1, {T}, {S}] for all heads, got "
            f"{[*mask.shape]}; use sdpa"
        )
