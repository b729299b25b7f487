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
        is_causal=mask is None and queries == keys,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out.transpose(1, 2)


def differential_attention(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """See `Kernel.differential_attention`.

    The queries are padded to [q1, 0] and [0, q2], so that both score the shared key [k1, k2] and
    share the value: all dimensions are 2d, which keeps SDPA on its fast path (unequal dimensions
    fall off it), and the two maps of a head are one more step of head sharing, one call for all.
    """
    B, T, H, _, d = q.shape
    side = torch.eye(2, dtype=q.dtype, device=q.device).unsqueeze(-1)
    padded = (q.unsqueeze(-2) * side).view(B, T, 2 * H, 2 * d)
    both = attention(padded.transpose(1, 2), k, v, scale=scale, mask=mask)
    first, second = both.reshape(B, T, H, 2, 2 * d).unbind(dim=3)
    return first - lam.to(second.dtype) * second
