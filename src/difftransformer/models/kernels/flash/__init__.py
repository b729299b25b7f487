"""flash-attn (https://github.com/Dao-AILab/flash-attention), for NVIDIA GPUs in half precision.

Version 2 (to be compiled), version 3 (Hopper only) or version 4 (a wheel for Hopper and later).
Shapes as in `models.kernels.Kernel`.

If values wider than keys are supported, a differential head is two calls with unpadded keys: 28
multiplications of T x T x d forward and backward. Otherwise it is one call with keys padded to the
value's width, 40.
"""

import importlib.util
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from difftransformer.errors import BackendError
from difftransformer.models.kernels import flex, sdpa

MAX_HEAD_DIM = 256
"""Largest width of keys, and of values as wide as the keys, that all versions support."""
_COMPUTE_CAPABILITY = {2: (8, 0), 3: (9, 0), 4: (9, 0)}
"""Lowest compute capability that each version supports."""


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """Compute softmax attention (`Kernel.attention`) with flash-attn.

    Raises:
        BackendError: There is a mask, a CPU tensor, float32, or heads too wide for flash-attn.
    """
    if mask is not None:
        raise BackendError(
            "backend flash_attn takes no mask; use sdpa for padded batches and packed documents"
        )
    if not _is_half_on_cuda(q):
        raise BackendError(
            f"backend flash_attn computes in half precision on CUDA, got {q.dtype} on "
            f"{q.device.type}; set precision bf16 and device cuda, or use sdpa"
        )
    if v.shape[-1] > q.shape[-1] and not _supports_wide_values(q, k, v):
        q, k = (F.pad(x, (0, v.shape[-1] - q.shape[-1])) for x in (q, k))
    if q.shape[-1] > MAX_HEAD_DIM:
        raise BackendError(
            f"backend flash_attn supports heads of at most {MAX_HEAD_DIM}, got {q.shape[-1]}: use "
            "sdpa"
        )
    positions_first = (x.transpose(1, 2) for x in (q, k, v))
    # Not an operation of torch, which would raise by itself if it were nondeterministic.
    deterministic = torch.are_deterministic_algorithms_enabled()
    out = _function()(
        *positions_first, softmax_scale=scale, causal=True, deterministic=deterministic
    )
    return out[0] if isinstance(out, tuple) else out  # version 3 may return the lse, too


def unavailable_reason(device: str, precision: str) -> str | None:
    """Return why flash-attn cannot run with this device and precision, or None if it can."""
    if device != "cuda":
        return f"it needs an NVIDIA GPU and the device is {device}; use sdpa or auto"
    if (version := generation()) is None:
        return "flash-attn is not installed; pip install '.[gpu]' in a checkout, or use sdpa"
    if precision == "fp32":
        return "it computes in half precision only; set precision bf16, or use sdpa"
    needed = _COMPUTE_CAPABILITY[version]
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < needed:
        return (
            f"flash-attn {version} needs compute capability {needed[0]}.{needed[1]}, "
            f"{torch.cuda.get_device_name()} has less; use sdpa"
        )
    return None


def generation() -> int | None:
    """Return the major version of the installed flash-attn, or None if there is none.

    If several are installed, 2 is preferred to 4, and 4 to 3.
    """
    return _installed()


# What `torch.compiler.assume_constant_result` does, without importing the compiler (seconds).
generation._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _installed() -> int | None:
    package = importlib.util.find_spec("flash_attn")
    if package is not None:
        return (
            2 if package.origin is not None else 4
        )  # version 4 is a namespace package, flash_attn.cute
    return None if importlib.util.find_spec("flash_attn_interface") is None else 3


def _function() -> Callable[..., Tensor | tuple[Tensor, ...]]:
    # Imported only if it is installed and chosen.
    if generation() == 4:
        from difftransformer.models.kernels.flash import flash4

        return flash4.attention
    if generation() == 3:
        from flash_attn_interface import flash_attn_func
    else:
        from flash_attn import flash_attn_func
    function: Callable[..., Tensor | tuple[Tensor, ...]] = flash_attn_func
    return function


def _is_half_on_cuda(q: Tensor) -> bool:
    return q.is_cuda and q.dtype in (torch.bfloat16, torch.float16)


def _supports_wide_values(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether the installed version supports values wider than keys (and their gradients).

    From the checks in its sources. Version 4: widths of 8 to 256 on Hopper and up to 128 on
    Blackwell, with gradients if heads do not share keys. Version 3: values up to 512 beside keys up
    to 64, forward only.
    """
    d, e = q.shape[-1], v.shape[-1]
    needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    if generation() == 4:
        shared = q.shape[1] != k.shape[1]
        return d % 8 == e % 8 == 0 and e <= _max_value_dim() and not (needs_grad and shared)
    return generation() == 3 and d <= 64 and e <= 512 and not needs_grad


def _max_value_dim() -> int:
    """Return the widest value beside narrower keys in version 4 on the current GPU."""
    return {9: 256, 10: 128, 11: 128}.get(torch.cuda.get_device_capability()[0], 0)


_max_value_dim._dynamo_marked_constant = True  # type: ignore[attr-defined]


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute softmax attention and its log-sum-exp (`Kernel.attention_with_lse`).

    FlexAttention computes both, since flash-attn's log-sum-exp has no gradient.
    """
    return flex.attention_with_lse(q, k, v, scale=scale, mask=mask)


def differential_attention(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """Compute differential attention (`Kernel.differential_attention`) with flash-attn.

    Queries and keys are padded as in `sdpa` if flash-attn takes no values wider than keys.
    """
    if q.shape[-2] > 1 and _is_half_on_cuda(q) and _supports_wide_values(q, k, v):
        attn1 = attention(q[:, 0::2], k[:, 0::2], v, scale=scale, mask=mask)
        attn2 = attention(q[:, 1::2], k[:, 1::2], v, scale=scale, mask=mask)
        return attn1 - lam.to(attn1.dtype) * attn2
    return sdpa.differential_attention(q, k, v, lam, scale=scale, mask=mask, attend=attention)
