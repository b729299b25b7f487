"""The equations with materialized attention maps: slow, quadratic memory, the reference.

Shapes as in `models.kernels.Kernel`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from difftransformer.models.autograd import at_least_fp32, no_autocast

LogitHook = Callable[[Tensor, Tensor], Tensor]
"""Maps logits [B, M, T, S] of M attention maps and the bool mask of allowed keys to new logits.

V1 calls it twice, for the first maps of all heads and for the second ones.
"""
_logit_hooks: list[tuple[LogitHook, bool]] = []


@contextmanager
def logit_hook(hook: LogitHook, *, softmax_only: bool = False) -> Iterator[None]:
    """Apply ``hook`` to the logits of every materialized attention map within the context.

    With ``softmax_only``, only to logits of a softmax; TDA's cosines, for example, have other
    units.
    """
    entry = hook, softmax_only
    _logit_hooks.append(entry)
    try:
        yield
    finally:
        _logit_hooks.remove(entry)


def apply_logit_hooks(logits: Tensor, allowed: Tensor, *, softmax: bool = True) -> Tensor:
    """Return the logits after applying all active hooks of `logit_hook`.

    Every function that materializes an attention map calls it.
    """
    for hook, softmax_only in _logit_hooks:
        if softmax or not softmax_only:
            logits = hook(logits, allowed)
    return logits


def attention_map(q: Tensor, k: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """Return softmax(q k' scale) over the allowed keys, in float32 or wider: [B, H, T, S]."""
    return logits(q, k, scale=scale, mask=mask).softmax(dim=-1)


def logits(q: Tensor, k: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """Return the attention logits q k' scale in float32 or wider, [B, H, T, S].

    Logits of masked keys are minus infinity.
    """
    with no_autocast(q):
        scores = at_least_fp32(q) @ at_least_fp32(repeat_kv(k, q.shape[1])).mT * scale
    allowed = causal_mask(q.shape[-2], k.shape[-2], q.device) if mask is None else mask
    return apply_logit_hooks(scores, allowed).masked_fill(~allowed, float("-inf"))


def differential_map(
    q: Tensor, k: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """Return map 1 minus lam times map 2 of each head, in float32 or wider: [B, H, T, S]."""
    map1 = attention_map(q[:, 0::2], k[:, 0::2], scale=scale, mask=mask)
    map2 = attention_map(q[:, 1::2], k[:, 1::2], scale=scale, mask=mask)
    return map1 - lam * map2


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """Compute softmax attention (`Kernel.attention`)."""
    return apply_attention(attention_map(q, k, scale=scale, mask=mask), v)


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute softmax attention and its log-sum-exp (`Kernel.attention_with_lse`)."""
    scores = logits(q, k, scale=scale, mask=mask)
    return apply_attention(scores.softmax(dim=-1), v), scores.logsumexp(dim=-1).transpose(1, 2)


def differential_attention(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """Compute differential attention (`Kernel.differential_attention`)."""
    return apply_attention(differential_map(q, k, lam, scale=scale, mask=mask), v)


def apply_attention(weights: Tensor, v: Tensor) -> Tensor:
    """Return the attention weights [B, H, T, S] times the values [B, G, S, e]: [B, T, H, e]."""
    return (weights.to(v.dtype) @ repeat_kv(v, weights.shape[1])).transpose(1, 2)


def causal_mask(T: int, S: int, device: torch.device) -> Tensor:
    """Return the causal mask for the last T of S positions, bool [T, S], True = may attend."""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(diagonal=S - T)


def repeat_kv(x: Tensor, num_heads: int) -> Tensor:
    """Return key/value heads [B, G, S, *], repeated to one per output head, [B, H, S, *]."""
    return x.repeat_interleave(num_heads // x.shape[1], dim=1)
