"""One softmax attention call for all variants, by backend.

Shapes: B = batch, H = query heads, K = key and value heads (K divides H), T = query positions,
S = key positions, d = width of queries and keys, e = width of values.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    backend: str,
    mask: Tensor | None = None,
) -> Tensor:
    """Return softmax(scale * Q K^T) V.

    Args:
        query: [B, H, T, d].
        key: [B, K, S, d].
        value: [B, K, S, e].
        scale: Factor on the logits.
        backend: "eager", "sdpa" or "flash_attn".
        mask: [B, 1, T, S] bool, True where a query may look. None is causal, the last query at
            the last key.

    Returns:
        [B, H, T, e].
    """
    match backend:
        case "flash_attn":
            return _flash(query, key, value, scale, mask)
        case "sdpa":
            return _sdpa(query, key, value, scale, mask)
    assert backend == "eager", backend
    return _eager(query, key, value, scale, mask)


def lower_right_causal(T: int, S: int, device: torch.device) -> Tensor:
    """Return the [T, S] bool mask in which query t may look at keys up to S - T + t."""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(S - T)


def _eager(query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None) -> Tensor:
    T, S = query.shape[-2], key.shape[-2]
    key, value = _per_query_head(key, value, query.shape[1])
    if mask is None:
        mask = lower_right_causal(T, S, query.device)
    logits = (query @ key.transpose(-1, -2)).float() * scale
    weights = torch.softmax(logits.masked_fill(~mask, float("-inf")), dim=-1)
    return weights.to(value.dtype) @ value


def _sdpa(query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None) -> Tensor:
    T, S = query.shape[-2], key.shape[-2]
    # Without copies only CUDA kernels share key and value heads.
    shares = query.device.type == "cuda" and key.shape[1] != query.shape[1]
    if not shares:
        key, value = _per_query_head(key, value, query.shape[1])
    if mask is None and 1 < T < S:
        mask = lower_right_causal(T, S, query.device)
    causal = mask is None and T > 1
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=shares
    )


def _flash(query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None) -> Tensor:
    from flash_attn import flash_attn_func

    assert mask is None, "flash_attn runs causal batches without padding"
    heads_last = (x.transpose(1, 2) for x in (query, key, value))
    out: Tensor = flash_attn_func(*heads_last, softmax_scale=scale, causal=True)
    return out.transpose(1, 2)


def _per_query_head(key: Tensor, value: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    group = heads // key.shape[1]
    if group == 1:
        return key, value
    return key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
