"""PyTorch's fused attention, on CPU and GPU.

Shapes as in `models.kernels.Kernel`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from difftransformer.models.kernels.eager import causal


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """See `Kernel.attention`."""
    queries, keys = q.shape[-2], k.shape[-2]
    if mask is None and 1 < queries < keys:
        mask = causal(queries, keys, q.device)
    out = F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask,
        is_causal=mask is None and queries > 1,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out.transpose(1, 2)


def differential_attention(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """See `Kernel.differential_attention`; padded, since SDPA is slow for a value wider than keys.

    The two maps of a head are one more step of head sharing, so one call computes them all.
    """
    return difference(attention(padded_queries(q), k, v, scale=scale, mask=mask), lam)


def padded_queries(q: Tensor) -> Tensor:
    """[B, T, H, 2, d] -> [B, 2H, T, 2d]: [q1, 0] and [0, q2], which both score [k1, k2]."""
    B, T, H, _, d = q.shape
    side = torch.eye(2, dtype=q.dtype, device=q.device).unsqueeze(-1)
    return (q.unsqueeze(-2) * side).view(B, T, 2 * H, 2 * d).transpose(1, 2)


def difference(both: Tensor, lam: Tensor) -> Tensor:
    """Outputs of all maps [B, T, 2H, e] -> first minus lam times second, [B, T, H, e]."""
    first, second = both.unflatten(2, (-1, 2)).unbind(dim=3)
    return first - lam.to(second.dtype) * second
