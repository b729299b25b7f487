"""flash-attn (https://github.com/Dao-AILab/flash-attention), for NVIDIA GPUs in half precision.

Its second generation, which has to be compiled, its third, which is for Hopper alone, or its
fourth, a wheel that needs no compiler and Hopper or later. Shapes as in `models.kernels.Kernel`.

Where values wider than keys are supported, a differential head is two calls with keys as they are:
28 products of T x T x d forward and backward. Elsewhere it is one call with keys padded to the
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

WIDEST = 256
"""Of keys, and of values that are no wider, for any generation."""
_COMPUTE_CAPABILITY = {2: (8, 0), 3: (9, 0), 4: (9, 0)}
"""Lowest compute capability that each generation supports."""


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """See `Kernel.attention`.

    Raises:
        BackendError: a mask, a CPU tensor, float32 or heads that are too wide for flash-attn.
    """
    if mask is not None:
        raise BackendError(
            "backend flash_attn takes no mask; take sdpa for padded batches and packed documents"
        )
    if not _computes(q):
        raise BackendError(
            f"backend flash_attn computes in half precision on CUDA, got {q.dtype} on "
            f"{q.device.type}; set precision bf16 and device cuda, or take sdpa"
        )
    if v.shape[-1] > q.shape[-1] and not _takes_wide(q, k, v):
        q, k = (F.pad(x, (0, v.shape[-1] - q.shape[-1])) for x in (q, k))
    if q.shape[-1] > WIDEST:
        raise BackendError(
            f"backend flash_attn has no kernel for heads of {q.shape[-1]}, {WIDEST} at most: take "
            "sdpa"
        )
    rows_first = (x.transpose(1, 2) for x in (q, k, v))
    repeat = torch.are_deterministic_algorithms_enabled()  # no operation of torch: it cannot refuse
    out = _function()(*rows_first, softmax_scale=scale, causal=True, deterministic=repeat)
    return out[0] if isinstance(out, tuple) else out  # the third may give its lse along


def unavailable_reason(device: str, precision: str) -> str | None:
    """See `kernels.unavailable_reason`."""
    if device != "cuda":
        return f"it needs an NVIDIA GPU and the device is {device}; take sdpa or auto"
    if (installed := generation()) is None:
        return "flash-attn is not installed; pip install '.[gpu]' in a checkout, or take sdpa"
    if precision == "fp32":
        return "it computes in half precision only; set precision bf16, or take sdpa"
    needed = _COMPUTE_CAPABILITY[installed]
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < needed:
        return (
            f"flash-attn {installed} needs compute capability {needed[0]}.{needed[1]}, "
            f"{torch.cuda.get_device_name()} has less; take sdpa"
        )
    return None


def generation() -> int | None:
    """Return which flash-attn is installed: 2, 3, 4 or none; the first of 2, 4 and 3."""
    return _installed()


# As `torch.compiler.assume_constant_result` has it, which imports the compiler: seconds.
generation._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _installed() -> int | None:
    package = importlib.util.find_spec("flash_attn")
    if package is not None:
        return 2 if package.origin is not None else 4  # the fourth fills a namespace, with .cute
    return None if importlib.util.find_spec("flash_attn_interface") is None else 3


def _function() -> Callable[..., Tensor | tuple[Tensor, ...]]:
    # Imported only where it is installed and was chosen.
    if generation() == 4:
        from difftransformer.models.kernels.flash import flash4

        return flash4.attention
    if generation() == 3:
        from flash_attn_interface import flash_attn_func
    else:
        from flash_attn import flash_attn_func
    function: Callable[..., Tensor | tuple[Tensor, ...]] = flash_attn_func
    return function


def _computes(q: Tensor) -> bool:
    return q.is_cuda and q.dtype in (torch.bfloat16, torch.float16)


def _takes_wide(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the installed generation computes values wider than keys, with gradients if asked.

    As their sources check it: the fourth takes widths of 8 to 256 on Hopper, with gradients where
    heads share no keys, and up to 128 on Blackwell, where that is not asked of it either; the
    third, forward alone, values up to 512 beside keys up to 64.
    """
    d, e = q.shape[-1], v.shape[-1]
    graded = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    if generation() == 4:
        shared = q.shape[1] != k.shape[1]
        return d % 8 == e % 8 == 0 and e <= _widest() and not (graded and shared)
    return generation() == 3 and d <= 64 and e <= 512 and not graded


def _widest() -> int:
    """Widest value beside narrower keys of the fourth generation, on the current card."""
    return {9: 256, 10: 128, 11: 128}.get(torch.cuda.get_device_capability()[0], 0)


_widest._dynamo_marked_constant = True  # type: ignore[attr-defined]


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """See `Kernel.attention_with_lse`; FlexAttention, as flash-attn's lse has no gradient."""
    return flex.attention_with_lse(q, k, v, scale=scale, mask=mask)


def differential_attention(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """See `Kernel.differential_attention`; as SDPA's where values are to be as wide as keys."""
    first, second = q[:, 0::2], q[:, 1::2]
    if q.shape[-2] > 1 and _computes(q) and _takes_wide(q, k, v):
        kept = attention(first, k[:, 0::2], v, scale=scale, mask=mask)
        other = attention(second, k[:, 1::2], v, scale=scale, mask=mask)
        return kept - lam.to(kept.dtype) * other
    return sdpa.differential_attention(q, k, v, lam, scale=scale, mask=mask, attend=attention)
