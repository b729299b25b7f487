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
    both = attention(padded_queries(q), joint_keys(k), v, scale=scale, mask=mask)
    return difference(both, lam)


def padded_queries(q: Tensor) -> Tensor:
    """[B, 2H, T, d] -> [B, 2H, T, 2d]: [q1, 0] and [0, q2], which both score [k1, k2]."""
    first, second = q[:, 0::2], q[:, 1::2]
    d = q.shape[-1]
    return torch.stack((F.pad(first, (0, d)), F.pad(second, (d, 0))), dim=2).flatten(1, 2)


def joint_keys(k: Tensor) -> Tensor:
    """[B, 2G, S, d] -> [B, G, S, 2d]: [k1, k2]."""
    return torch.cat((k[:, 0::2], k[:, 1::2]), dim=-1)


def difference(both: Tensor, lam: Tensor) -> Tensor:
    """[B, T, 2H, e] -> [B, T, H, e]: a head's first output minus lam times its second."""
    return both[:, :, 0::2] - lam.to(both.dtype) * both[:, :, 1::2]
