"""Attention on the CPU by blocks of queries, with hand-written gradients.

The maps of one block of queries are written out, which keeps them in cache, skips the keys that no
query of the block may see, and leaves everything heavy to batched matrix products. For differential
attention the two maps of a head are combined before they meet the value, so that forward there is
one product with the value and backward one each with the value and its gradient: of T x T x d
products 4 forward and 8 backward for a pair of maps. Two calls of a fused kernel, with queries and
keys padded to the value's 2d, need 8 and 20; two ordinary heads in such a kernel 4 and 10.

Shapes as in `models.kernels.Kernel`, and: M = maps of a head (1 or 2), R = H / G output heads that
share a key/value head, P = B G M problems, N = B G, b = queries of a block.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 64
"""Queries of a block: measured best of 32 to 256 for 64 to 512 positions, d of 32 and 64."""
KEPT_KEYS = 1024
"""Up to so many keys the maps are kept for the backward pass, beyond they are computed again."""


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """See `Kernel.attention`."""
    return _attend(q, k, v, None, scale, mask)


def differential_attention(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """See `Kernel.differential_attention`."""
    return _attend(q, k, v, lam, scale, mask)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor | None, scale: float, mask: Tensor | None
) -> Tensor:
    B, _, T, d = q.shape
    G, S, e = v.shape[1:]
    M = k.shape[1] // G
    # Query heads come as [G, R, M], keys as [G, M].
    q = q.view(B, G, -1, M, T, d).transpose(2, 3).reshape(B * G * M, -1, T, d)
    k, v = k.reshape(B * G * M, S, d), v.reshape(B * G, S, e)
    out: Tensor = _Blocked.apply(  # type: ignore[no-untyped-call]
        q.float(), k.float(), v.float(), lam, scale, mask
    )
    out = out.view(B, -1, T, e).transpose(1, 2)
    return out.contiguous().to(v.dtype)


class _Blocked(torch.autograd.Function):
    """q [P, R, T, d], k [P, S, d], v [N, S, e] -> [N, R, T, e], all float32."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        lam: Tensor | None,
        scale: float,
        mask: Tensor | None,
    ) -> Tensor:
        R, T = q.shape[1:3]
        out = v.new_empty(len(v), R, T, v.shape[-1])
        kept = []
        for rows, seen in _blocks(T, k.shape[1], mask):
            maps = _maps(q, k, rows, seen, scale, mask)
            weights = _combine(maps, lam, len(v))
            out[:, :, rows] = (weights @ v[:, seen]).view(len(v), R, -1, v.shape[-1])
            kept.append(maps)
        if k.shape[1] > KEPT_KEYS:
            kept = []
        ctx.save_for_backward(q, k, v, lam, mask, *kept)
        ctx.scale = scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, lam, mask, *kept = ctx.saved_tensors
        q_grad, k_grad, v_grad = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        lam_grad = None if lam is None else torch.zeros_like(lam)
        for index, (rows, seen) in enumerate(_blocks(q.shape[2], k.shape[1], mask)):
            maps = kept[index] if kept else _maps(q, k, rows, seen, ctx.scale, mask)
            out_grad = grad[:, :, rows].flatten(1, 2)
            weights = _combine(maps, lam, len(v))
            v_grad[:, seen].baddbmm_(weights.transpose(1, 2), out_grad)
            weights_grad = out_grad @ v[:, seen].transpose(1, 2)
            scores_grad = _scores_grad(maps, weights_grad, lam, lam_grad)
            part = torch.bmm(scores_grad, k[:, seen]).mul_(ctx.scale)
            q_grad[:, :, rows] = part.view(*q.shape[:2], -1, q.shape[-1])
            queries = q[:, :, rows].flatten(1, 2)
            k_grad[:, seen].baddbmm_(scores_grad.transpose(1, 2), queries, alpha=ctx.scale)
        return q_grad, k_grad, v_grad, lam_grad, None, None


def _blocks(T: int, S: int, mask: Tensor | None) -> list[tuple[slice, slice]]:
    """Blocks of queries, and the keys each may see: with a mask all, else up to its last one."""
    ends = [(start, min(start + BLOCK, T)) for start in range(0, T, BLOCK)]
    return [(slice(a, b), slice(0, S if mask is not None else S - T + b)) for a, b in ends]


def _maps(
    q: Tensor, k: Tensor, rows: slice, seen: slice, scale: float, mask: Tensor | None
) -> Tensor:
    """Attention maps [P, R b, keys] of one block."""
    queries = q[:, :, rows].flatten(1, 2)
    keys = k[:, seen].transpose(1, 2)
    scores = torch.baddbmm(queries.new_empty(()), queries, keys, beta=0, alpha=scale)
    b = rows.stop - rows.start
    if mask is None:
        own = scores.view(len(q), -1, b, seen.stop)[..., seen.stop - b :]
        own.masked_fill_(torch.ones(b, b, dtype=torch.bool).triu_(1), -math.inf)
    else:
        by_batch = scores.view(len(mask), -1, b, seen.stop)
        by_batch.masked_fill_(~mask[:, :, rows], -math.inf)
    return torch.softmax(scores, dim=-1, out=scores)


def _combine(maps: Tensor, lam: Tensor | None, problems: int) -> Tensor:
    """First map minus lam times second, [N, R b, keys]; the map itself without lam."""
    if lam is None:
        return maps
    pairs = maps.view(problems, 2, *maps.shape[1:])
    return torch.addcmul(pairs[:, 0], pairs[:, 1], lam, value=-1)


def _scores_grad(
    maps: Tensor, weights_grad: Tensor, lam: Tensor | None, lam_grad: Tensor | None
) -> Tensor:
    """Gradient of the scores [P, R b, keys]: A * (dA - rowsum(dA * A)); adds to ``lam_grad``."""
    out = torch.empty_like(maps)
    if lam is None or lam_grad is None:
        _softmax_grad(maps, weights_grad, out)
        return out
    pairs, grads = (x.view(len(weights_grad), 2, *x.shape[1:]) for x in (maps, out))
    _softmax_grad(pairs[:, 0], weights_grad, grads[:, 0])
    lam_grad -= _softmax_grad(pairs[:, 1], weights_grad, grads[:, 1]).sum()
    grads[:, 1].mul_(-lam)
    return out


def _softmax_grad(softmax: Tensor, grad: Tensor, out: Tensor) -> Tensor:
    """Write the gradient through a softmax into ``out``; return the row sums of softmax * grad."""
    torch.mul(softmax, grad, out=out)
    sums = out.sum(dim=-1, keepdim=True)
    out.addcmul_(softmax, sums, value=-1)
    return sums
