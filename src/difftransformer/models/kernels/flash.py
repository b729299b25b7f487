"""flash-attn (https://github.com/Dao-AILab/flash-attention), for NVIDIA GPUs in half precision.

Its second generation, which has to be compiled, or its fourth, a wheel that needs no compiler and
Hopper or later. Shapes as in `models.kernels.Kernel`.
"""

import importlib.util
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from difftransformer.errors import BackendError
from difftransformer.models.kernels import sdpa


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """See `Kernel.attention`.

    Raises:
        BackendError: padding, a CPU tensor or float32, none of which flash-attn computes.
    """
    if mask is not None:
        raise BackendError("backend flash_attn takes no padding mask; take sdpa for padded batches")
    if not _computes(q):
        raise BackendError(
            f"backend flash_attn computes in half precision on CUDA, got {q.dtype} on "
            f"{q.device.type}; set precision bf16 and device cuda, or take sdpa"
        )
    if v.shape[-1] > q.shape[-1]:  # it wants values as wide as keys
        q, k = (F.pad(x, (0, v.shape[-1] - q.shape[-1])) for x in (q, k))
    rows_first = (x.transpose(1, 2) for x in (q, k, v))
    repeat = torch.are_deterministic_algorithms_enabled()  # no operation of torch: it cannot refuse
    out = _function()(*rows_first, softmax_scale=scale, causal=True, deterministic=repeat)
    return out[0] if isinstance(out, tuple) else out  # the fourth gives its lse along


@cache
def generation() -> int | None:
    """Return which flash-attn is installed: 2, 4 or none; 2 where both are."""
    package = importlib.util.find_spec("flash_attn")
    if package is None:
        return None
    return 2 if package.origin is not None else 4  # the fourth fills a namespace, flash_attn.cute


def _function() -> Callable[..., Tensor | tuple[Tensor, ...]]:
    # Imported only where it is installed and was chosen.
    if generation() == 4:
        from flash_attn.cute import flash_attn_func
    else:
        from flash_attn import flash_attn_func
    function: Callable[..., Tensor | tuple[Tensor, ...]] = flash_attn_func
    return function


def _computes(q: Tensor) -> bool:
    return q.is_cuda and q.dtype in (torch.bfloat16, torch.float16)


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """See `Kernel.attention_with_lse`; FlexAttention, as flash-attn's lse has no gradient."""
    return sdpa.flex_attention_with_lse(q, k, v, scale=scale, mask=mask)


def differential_attention(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """See `Kernel.differential_attention`; as SDPA's, since values are to be as wide as keys."""
    return sdpa.differential_attention(q, k, v, lam, scale=scale, mask=mask, attend=attention)
