"""The equations with every attention map written out: slow, quadratic memory, the reference.

Shapes as in `models.kernels.Kernel`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from difftransformer.models.autograd import at_least_fp32, no_autocast

LogitHook = Callable[[Tensor, Tensor], Tensor]
"""Logits [B, M, T, S] of M softmax maps, and which keys each query may see, to what replaces them.

Those of V1 make two calls, one for the first maps of all heads and one for the second.
"""
_taps: list[tuple[LogitHook, bool]] = []


@contextmanager
def logit_hook(tap: LogitHook, *, softmax_only: bool = False) -> Iterator[None]:
    """Let ``tap`` see, and replace, the logits of every map that is written out.

    With ``softmax_only`` those that go to a softmax: others, as TDA's cosines, have other units.
    """
    entry = tap, softmax_only
    _taps.append(entry)
    try:
        yield
    finally:
        _taps.remove(entry)


def apply_logit_hooks(logits: Tensor, allowed: Tensor, *, softmax: bool = True) -> Tensor:
    """Return what the taps that are in place make of logits; whoever writes out a map calls it."""
    for tap, softmax_only in _taps:
        if softmax or not softmax_only:
            logits = tap(logits, allowed)
    return logits


def attention_map(q: Tensor, k: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """Return softmax(q k' scale) over the allowed keys, computed in float32: [B, H, T, S]."""
    return logits(q, k, scale=scale, mask=mask).softmax(dim=-1)


def logits(q: Tensor, k: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """Return q k' scale in float32, [B, H, T, S], minus infinity for keys that are not allowed."""
    with no_autocast(q):
        scores = at_least_fp32(q) @ at_least_fp32(repeat_kv(k, q.shape[1])).mT * scale
    allowed = causal_mask(q.shape[-2], k.shape[-2], q.device) if mask is None else mask
    return apply_logit_hooks(scores, allowed).masked_fill(~allowed, float("-inf"))


def differential_map(
    q: Tensor, k: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """Return the first map of each pair minus lam times the second, in float32: [B, H, T, S]."""
    first = attention_map(q[:, 0::2], k[:, 0::2], scale=scale, mask=mask)
    second = attention_map(q[:, 1::2], k[:, 1::2], scale=scale, mask=mask)
    return first - lam * second


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """See `Kernel.attention`."""
    return apply_attention(attention_map(q, k, scale=scale, mask=mask), v)


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """See `Kernel.attention_with_lse`."""
    scores = logits(q, k, scale=scale, mask=mask)
    return apply_attention(scores.softmax(dim=-1), v), scores.logsumexp(dim=-1).transpose(1, 2)


def differential_attention(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """See `Kernel.differential_attention`."""
    return apply_attention(differential_map(q, k, lam, scale=scale, mask=mask), v)


def apply_attention(weights: Tensor, v: Tensor) -> Tensor:
    """Apply maps [B, H, T, S] to the values [B, G, S, e]: [B, T, H, e]."""
    return (weights.to(v.dtype) @ repeat_kv(v, weights.shape[1])).transpose(1, 2)


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """Return bool [T, S]: the last query sees the last key, each earlier one sees one key less."""
    allowed = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return allowed.tril(diagonal=keys - queries)


def repeat_kv(x: Tensor, heads: int) -> Tensor:
    """Repeat key/value heads [B, G, S, *] so that there is one for each output head."""
    return x.repeat_interleave(heads // x.shape[1], dim=1)
