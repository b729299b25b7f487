"""Attention on the CPU by blocks of queries, with hand-written gradients.

The maps of one block of queries are written out, which keeps them in cache, skips the keys that no
query of the block may see, and leaves everything heavy to batched matrix products; where that is
faster than SDPA stands in `kernels.cpu_dispatch`. The two maps of a differential
head are combined before they meet the value, so that forward there is one product with the value,
and backward one each with the value and its gradient: of products of T x T x d, 4 forward and 8
backward for a head. Two calls of a fused kernel on queries and keys padded to the value's 2d need 8
and 20; two ordinary heads in such a kernel 4 and 10.

Shapes as in `models.kernels.Kernel`, and: R = H / G output heads that share a key/value head,
N = B G, P = 2 N maps (N without a difference), b = queries of a block, K = keys that it sees.
"""

import math
from typing import Any

import torch
from torch import Tensor

from difftransformer.models.autograd import at_least_fp32, no_autocast, no_double_backward
from difftransformer.models.kernels import sdpa

BLOCK = 64
"""Queries of a block: measured best of 32 to 256 for 64 to 1024 positions, d of 32 and 64."""
MAX_SAVED_KEYS = 1024
"""Up to so many keys the maps are kept for the backward pass, beyond they are computed again."""


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """See `Kernel.attention`; computed in float32 at least."""
    return _blocked(q, k, v, None, scale, mask)[0]


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """See `Kernel.attention_with_lse`; computed in float32 at least."""
    out, lse = _blocked(q, k, v, None, scale, mask, with_lse=True)
    assert lse is not None
    return out, lse.view(len(q), -1, q.shape[2]).transpose(1, 2)


def differential_attention(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """See `Kernel.differential_attention`; computed in float32 at least.

    A single query has no block: `sdpa` writes it out with fewer calls.
    """
    B, G, (T, d) = len(v), v.shape[1], q.shape[2:]
    if T == 1:
        with no_autocast(q):
            q, k, values = map(at_least_fp32, (q, k, v))
            out = sdpa.differential_attention(q, k, values, lam, scale=scale, mask=mask)
        return out.to(v.dtype)
    # Query heads come as [G, R, 2], keys as [G, 2].
    q = q.view(B, G, -1, 2, T, d).transpose(2, 3)
    return _blocked(q, k, v, lam, scale, mask)[0].contiguous()


def _blocked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lam: Tensor | None,
    scale: float,
    mask: Tensor | None,
    *,
    with_lse: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """As `Kernel` has it, but for q, whose heads are in the order of the keys, and lse."""
    B, _, S, e = v.shape
    T, d = q.shape[-2:]
    k, values = k.reshape(-1, S, d), v.reshape(-1, S, e)
    q = q.reshape(len(k), -1, T, d)
    with no_autocast(q):
        out, lse = _Blocked.apply(  # type: ignore[no-untyped-call]
            *map(at_least_fp32, (q, k, values)), lam, scale, mask, with_lse
        )
    return out.view(B, -1, T, e).transpose(1, 2).to(v.dtype), lse


class _Blocked(torch.autograd.Function):
    """q [P, R, T, d], k [P, S, d], v [N, S, e], lam scalar or None -> [N, R, T, e].

    With ``with_lse``, for single maps, also the log-sum-exp [N, R, T] of the scores, else None.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        lam: Tensor | None,
        scale: float,
        mask: Tensor | None,
        with_lse: bool,
    ) -> tuple[Tensor, Tensor | None]:
        R, T = q.shape[1:3]
        out = v.new_empty(len(v), R, T, v.shape[-1])
        lse = q.new_empty(len(q), R, T) if with_lse else None
        keep = k.shape[1] <= MAX_SAVED_KEYS and any(ctx.needs_input_grad)
        kept = []
        for rows, seen in _blocks(T, k.shape[1], mask):
            maps = _maps(q, k, rows, seen, scale, mask, lse)
            out[:, :, rows] = (_difference(maps, lam) @ v[:, seen]).view_as(out[:, :, rows])
            if keep:
                kept.append(maps)
        ctx.save_for_backward(q, k, v, lam, mask, *kept)
        ctx.scale = scale
        return out, lse

    @staticmethod
    @no_double_backward
    def backward(ctx: Any, grad: Tensor, lse_grad: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, lam, mask, *kept = ctx.saved_tensors
        q_grad, k_grad, v_grad = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        lam_grad = None if lam is None else torch.zeros_like(lam)
        with no_autocast(grad):
            for index, (rows, seen) in enumerate(_blocks(q.shape[2], k.shape[1], mask)):
                maps = kept[index] if kept else _maps(q, k, rows, seen, ctx.scale, mask)
                out_grad = grad[:, :, rows].flatten(1, 2)
                v_grad[:, seen].baddbmm_(_difference(maps, lam).transpose(1, 2), out_grad)
                scores_grad = _scores_grad(
                    maps, out_grad @ v[:, seen].transpose(1, 2), lam, lam_grad
                )
                if lse_grad is not None:
                    scores_grad.addcmul_(maps, lse_grad[:, :, rows].flatten(1, 2).unsqueeze(-1))
                part = torch.bmm(scores_grad, k[:, seen]).mul_(ctx.scale)
                q_grad[:, :, rows] = part.view_as(q_grad[:, :, rows])
                queries = q[:, :, rows].flatten(1, 2)
                k_grad[:, seen].baddbmm_(scores_grad.transpose(1, 2), queries, alpha=ctx.scale)
        return q_grad, k_grad, v_grad, lam_grad, None, None, None


def _blocks(T: int, S: int, mask: Tensor | None) -> list[tuple[slice, slice]]:
    """Blocks of queries, and the keys each may see: with a mask all, else up to its last one."""
    ends = [(start, min(start + BLOCK, T)) for start in range(0, T, BLOCK)]
    return [(slice(a, b), slice(0, S if mask is not None else S - T + b)) for a, b in ends]


def _maps(
    q: Tensor,
    k: Tensor,
    rows: slice,
    seen: slice,
    scale: float,
    mask: Tensor | None,
    lse: Tensor | None = None,
) -> Tensor:
    """Attention maps [P, R b, K] of one block; writes its rows of ``lse`` [P, R, T]."""
    queries, keys = q[:, :, rows].flatten(1, 2), k[:, seen].transpose(1, 2)
    scores = torch.baddbmm(queries.new_empty(()), queries, keys, beta=0, alpha=scale)
    b = rows.stop - rows.start
    if mask is None:
        own = scores.view(len(q), -1, b, seen.stop)[..., seen.stop - b :]
        own.masked_fill_(torch.ones(b, b, dtype=torch.bool, device=q.device).triu_(1), -math.inf)
    else:
        by_batch = scores.view(len(mask), -1, b, seen.stop)
        by_batch.masked_fill_(~mask[:, :, rows], -math.inf)
    if lse is None:
        return torch.softmax(scores, dim=-1, out=scores)
    largest = scores.amax(dim=-1)
    maps = torch.softmax(scores, dim=-1, out=scores)
    # The largest weight is exp(largest - lse): two maxima instead of another exponential.
    lse[:, :, rows] = (largest - maps.amax(dim=-1).log_()).view(len(q), -1, b)
    return maps


def _pairs(maps: Tensor) -> tuple[Tensor, Tensor]:
    """First and second maps, [N, R b, K] each, as views."""
    pairs = maps.view(-1, 2, *maps.shape[1:])
    return pairs[:, 0], pairs[:, 1]


def _difference(maps: Tensor, lam: Tensor | None) -> Tensor:
    """First maps minus lam times second, [N, R b, K]."""
    if lam is None:
        return maps
    first, second = _pairs(maps)
    return torch.addcmul(first, second, lam, value=-1)


def _scores_grad(maps: Tensor, grad: Tensor, lam: Tensor | None, lam_grad: Tensor | None) -> Tensor:
    """Gradient of the scores [P, R b, K] from that of the difference; adds to ``lam_grad``."""
    out = torch.empty_like(maps)
    if lam is None or lam_grad is None:
        _softmax_grad(maps, grad, out)
        return out
    (first, second), (first_grad, second_grad) = _pairs(maps), _pairs(out)
    _softmax_grad(first, grad, first_grad)
    lam_grad -= _softmax_grad(second, grad, second_grad).sum()
    second_grad.mul_(-lam)
    return out


def _softmax_grad(softmax: Tensor, grad: Tensor, out: Tensor) -> Tensor:
    """Write A * (dA - rowsum(A * dA)) into ``out``; return the row sums."""
    if torch.compiler.is_compiling():  # which takes no strided ``out=``, and needs none
        out.copy_(softmax * grad)
    else:
        torch.mul(softmax, grad, out=out)
    sums = out.sum(dim=-1, keepdim=True)
    out.addcmul_(softmax, sums, value=-1)
    return sums
