"""Attention on the CPU by blocks of queries, with a custom backward pass.

The maps of one block of queries are materialized: they stay in the CPU's cache, keys that no query
of the block attends to are skipped, and the work is batched matrix multiplication.
`kernels.cpu_dispatch` states when that is faster than SDPA. The two maps of a differential head are
subtracted before they multiply the values, so a head needs 4 multiplications of T x T x d forward
and 8 backward. Two calls of a fused kernel on queries and keys padded to the value's 2d need 8 and
20; two ordinary heads in such a kernel 4 and 10.

Shapes as in `models.kernels.Kernel`, and: R = H / G output heads that share a key/value head,
N = B G, P = 2 N maps (N for single maps), b = queries of a block, K = keys it attends to.
"""

import math
from typing import Any

import torch
from torch import Tensor

from difftransformer.models.autograd import at_least_fp32, no_autocast, no_double_backward
from difftransformer.models.kernels import sdpa

BLOCK = 64
"""Queries per block; fastest of 32 to 256 at 64 to 1024 positions with d of 32 and 64."""
MAX_SAVED_KEYS = 1024
"""Largest number of keys for which maps are saved for backward; else they are recomputed."""


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """Compute softmax attention (`Kernel.attention`) in float32 or wider."""
    return _blocked(q, k, v, None, scale, mask)[0]


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute softmax attention and its log-sum-exp (`Kernel.attention_with_lse`).

    Both are computed in float32 or wider.
    """
    out, lse = _blocked(q, k, v, None, scale, mask, with_lse=True)
    assert lse is not None
    return out, lse.view(len(q), -1, q.shape[2]).transpose(1, 2)


def differential_attention(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """Compute differential attention (`Kernel.differential_attention`) in float32 or wider.

    A single query is computed by `sdpa` with fewer calls.
    """
    B, G, (T, d) = len(v), v.shape[1], q.shape[2:]
    if T == 1:
        with no_autocast(q):
            q, k, values = map(at_least_fp32, (q, k, v))
            out = sdpa.differential_attention(q, k, values, lam, scale=scale, mask=mask)
        return out.to(v.dtype)
    # Query heads are ordered [G, R, 2], key heads [G, 2].
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
    """Compute an operation of `Kernel`; query heads are in the order of the key heads."""
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

    With ``with_lse`` (single maps only) also the log-sum-exp [N, R, T] of the scores, else None.
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
        save_maps = k.shape[1] <= MAX_SAVED_KEYS and any(ctx.needs_input_grad)
        saved_maps = []
        for rows, visible in _blocks(T, k.shape[1], mask):
            maps = _maps(q, k, rows, visible, scale, mask, lse)
            out[:, :, rows] = (_difference(maps, lam) @ v[:, visible]).view_as(out[:, :, rows])
            if save_maps:
                saved_maps.append(maps)
        ctx.save_for_backward(q, k, v, lam, mask, *saved_maps)
        ctx.scale = scale
        return out, lse

    @staticmethod
    @no_double_backward
    def backward(ctx: Any, grad: Tensor, lse_grad: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, lam, mask, *saved_maps = ctx.saved_tensors
        q_grad, k_grad, v_grad = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        lam_grad = None if lam is None else torch.zeros_like(lam)
        with no_autocast(grad):
            for index, (rows, visible) in enumerate(_blocks(q.shape[2], k.shape[1], mask)):
                if saved_maps:
                    maps = saved_maps[index]
                else:
                    maps = _maps(q, k, rows, visible, ctx.scale, mask)
                out_grad = grad[:, :, rows].flatten(1, 2)
                v_grad[:, visible].baddbmm_(_difference(maps, lam).transpose(1, 2), out_grad)
                scores_grad = _scores_grad(
                    maps, out_grad @ v[:, visible].transpose(1, 2), lam, lam_grad
                )
                if lse_grad is not None:
                    scores_grad.addcmul_(maps, lse_grad[:, :, rows].flatten(1, 2).unsqueeze(-1))
                block_grad = torch.bmm(scores_grad, k[:, visible]).mul_(ctx.scale)
                q_grad[:, :, rows] = block_grad.view_as(q_grad[:, :, rows])
                queries = q[:, :, rows].flatten(1, 2)
                k_grad[:, visible].baddbmm_(scores_grad.transpose(1, 2), queries, alpha=ctx.scale)
        return q_grad, k_grad, v_grad, lam_grad, None, None, None


def _blocks(T: int, S: int, mask: Tensor | None) -> list[tuple[slice, slice]]:
    """Return each block of queries and its keys: all with a mask, else up to its last query."""
    ends = [(start, min(start + BLOCK, T)) for start in range(0, T, BLOCK)]
    return [(slice(a, b), slice(0, S if mask is not None else S - T + b)) for a, b in ends]


def _maps(
    q: Tensor,
    k: Tensor,
    rows: slice,
    visible: slice,
    scale: float,
    mask: Tensor | None,
    lse: Tensor | None = None,
) -> Tensor:
    """Return the attention maps [P, R b, K] of one block; fill its rows of ``lse`` [P, R, T]."""
    queries, keys = q[:, :, rows].flatten(1, 2), k[:, visible].transpose(1, 2)
    scores = torch.baddbmm(queries.new_empty(()), queries, keys, beta=0, alpha=scale)
    b = rows.stop - rows.start
    if mask is None:
        diagonal = scores.view(len(q), -1, b, visible.stop)[..., visible.stop - b :]
        diagonal.masked_fill_(
            torch.ones(b, b, dtype=torch.bool, device=q.device).triu_(1), -math.inf
        )
    else:
        by_batch = scores.view(len(mask), -1, b, visible.stop)
        by_batch.masked_fill_(~mask[:, :, rows], -math.inf)
    if lse is None:
        return torch.softmax(scores, dim=-1, out=scores)
    largest = scores.amax(dim=-1)
    maps = torch.softmax(scores, dim=-1, out=scores)
    # The largest weight is exp(largest - lse): two maxima instead of another exponential.
    lse[:, :, rows] = (largest - maps.amax(dim=-1).log_()).view(len(q), -1, b)
    return maps


def _pairs(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Return views of the first and the second maps, [N, R b, K] each."""
    pairs = maps.view(-1, 2, *maps.shape[1:])
    return pairs[:, 0], pairs[:, 1]


def _difference(maps: Tensor, lam: Tensor | None) -> Tensor:
    """Return the first maps minus lam times the second, [N, R b, K]."""
    if lam is None:
        return maps
    map1, map2 = _pairs(maps)
    return torch.addcmul(map1, map2, lam, value=-1)


def _scores_grad(maps: Tensor, grad: Tensor, lam: Tensor | None, lam_grad: Tensor | None) -> Tensor:
    """Return the scores' gradient [P, R b, K] from that of the difference; add to ``lam_grad``."""
    out = torch.empty_like(maps)
    if lam is None or lam_grad is None:
        _softmax_grad(maps, grad, out)
        return out
    (map1, map2), (map1_grad, map2_grad) = _pairs(maps), _pairs(out)
    _softmax_grad(map1, grad, map1_grad)
    lam_grad -= _softmax_grad(map2, grad, map2_grad).sum()
    map2_grad.mul_(-lam)
    return out


def _softmax_grad(softmax: Tensor, grad: Tensor, out: Tensor) -> Tensor:
    """Write A * (dA - rowsum(A * dA)) into ``out``; return the row sums."""
    if torch.compiler.is_compiling():  # no strided ``out=`` when compiling
        out.copy_(softmax * grad)
    else:
        torch.mul(softmax, grad, out=out)
    sums = out.sum(dim=-1, keepdim=True)
    out.addcmul_(softmax, sums, value=-1)
    return sums
