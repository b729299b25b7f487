"""PyTorch's fused attention, on CPU and GPU.

Shapes as in `models.kernels.Kernel`.
"""

import logging
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from difftransformer.models.autograd import no_double_backward, run_in_thread
from difftransformer.models.kernels import eager, flex
from difftransformer.models.kernels.eager import causal_mask, repeat_kv
from difftransformer.models.linear import bmm_fp32

logger = logging.getLogger(__name__)
FURTHER_COLUMNS = 8
"""One is needed; a multiple of the vector width keeps rows aligned."""


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """See `Kernel.attention`.

    One query, as in decoding, is not causal: the heads of a group are then so many queries of one
    head, and its keys and values are read once.
    """
    if q.shape[-2] == 1 and q.shape[1] != k.shape[1]:
        rows = q.reshape(k.shape[0], k.shape[1], -1, q.shape[-1])
        out = F.scaled_dot_product_attention(rows, k, v, attn_mask=mask, scale=scale)
        return out.reshape(len(q), 1, q.shape[1], -1)
    queries, keys = q.shape[-2], k.shape[-2]
    if mask is None and 1 < queries < keys:
        mask = causal_mask(queries, keys, q.device)
    if q.is_cuda and (mask is not None or q.dtype == torch.float32):
        # No fused kernel there shares keys with a mask or in float32; PyTorch would write out maps.
        k, v = repeat_kv(k, q.shape[1]), repeat_kv(v, q.shape[1])
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=_causally(queries, mask), scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )  # fmt: skip
    return out.transpose(1, 2)


def _causally(queries: int, mask: Tensor | None) -> bool:
    """Whether to pass is_causal to SDPA: with one query, it would attend only to the first key."""
    if queries == 1:  # a branch, since a compiled length is compared to a symbol, and not a bool
        return False
    return mask is None


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """See `Kernel.attention_with_lse`.

    SDPA keeps the log-sum-exp to itself: on the CPU this calls the operation behind it, which is
    private, so that maps are written out should torch lose it; elsewhere FlexAttention, which
    PyTorch fuses for it, but for a single query.
    """
    if q.device.type != "cpu" and q.shape[-2] == 1:
        return one_query_with_lse(q, k, v, scale, mask)
    if q.device.type != "cpu":
        return flex.attention_with_lse(q, k, v, scale=scale, mask=mask)
    if not _lse_is_sound():
        return eager.attention_with_lse(q, k, v, scale=scale, mask=mask)
    queries, keys = q.shape[-2], k.shape[-2]
    if mask is None and 1 < queries < keys:
        mask = causal_mask(queries, keys, q.device)
    if mask is not None:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -math.inf)
        mask = mask.view(-1, 1, queries, keys)
    k, v = repeat_kv(k, q.shape[1]), repeat_kv(v, q.shape[1])
    out, lse = _WithLse.apply(q, k, v, mask, scale)  # type: ignore[no-untyped-call]
    return out.transpose(1, 2), lse.transpose(1, 2)


def _lse_is_sound() -> bool:
    """Whether torch has the private operation, and it and its gradients are right."""
    return _lse_was_sound()


_lse_is_sound._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as in `matrices`


@cache
def _lse_was_sound() -> bool:
    sound = run_in_thread(_lse_is_right)
    if not sound:
        logger.warning(
            f"torch {torch.__version__} has no attention with its log-sum-exp that we know: maps "
            "are written out, which is slower; a release that was tried is in pyproject.toml"
        )
    return sound


def _lse_is_right() -> bool:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, 3, 8, generator=generator).requires_grad_() for _ in range(3))

    def outcome(out: Tensor, lse: Tensor) -> list[Tensor]:
        factors = torch.arange(24.0).view_as(out)
        return [out, lse, *torch.autograd.grad((out * factors).sum() + 3 * lse.sum(), (q, k, v))]

    wanted = outcome(*eager.attention_with_lse(q, k, v, scale=0.5, mask=None))
    try:
        out, lse = _WithLse.apply(q, k, v, None, 0.5)  # type: ignore[no-untyped-call]
        found = outcome(out.transpose(1, 2), lse.transpose(1, 2))
    except (AttributeError, RuntimeError, TypeError):
        return False
    return all(torch.allclose(a, b, atol=1e-4) for a, b in zip(found, wanted, strict=True))


class _WithLse(torch.autograd.Function):
    """q, k, v [B, H, *, d] -> out [B, H, T, d] and lse [B, H, T].

    With A = softmax, P = dO V' and D = rowsum(dO * O), the gradient of the scores is A * (P - D +
    dlse). SDPA's own backward gives A * (P - D) for what it is handed, so it is handed values of
    one column more, ones, whose output it is told was zero and has the gradient dlse.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float
    ) -> tuple[Tensor, Tensor]:
        is_causal = _causally(q.shape[-2], mask)
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, is_causal, attn_mask=mask, scale=scale
        )
        ctx.save_for_backward(q, k, v, mask, out, lse)
        ctx.is_causal, ctx.scale = is_causal, scale
        return out, lse

    @staticmethod
    @no_double_backward
    def backward(ctx: Any, out_grad: Tensor, lse_grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask, out, lse = ctx.saved_tensors
        d = q.shape[-1]
        wide = [F.pad(x, (0, FURTHER_COLUMNS)) for x in (out_grad, q, k, v, out)]
        wide[0][..., d] = lse_grad.to(out_grad.dtype)
        wide[3][..., d] = 1.0
        grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *wide, lse, 0.0, ctx.is_causal, attn_mask=mask, scale=ctx.scale
        )
        return *(grad[..., :d] for grad in grads), None, None


def differential_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lam: Tensor,
    *,
    scale: float,
    mask: Tensor | None,
    attend: Callable[..., Tensor] = attention,
) -> Tensor:
    """See `Kernel.differential_attention`; padded, since SDPA is slow for a value wider than keys.

    The two maps of a head are one more step of head sharing, so one call of ``attend`` computes
    them all: queries [q1, 0] and [0, q2] both score joint keys [k1, k2]. For one query, as in
    decoding, joint keys would be a copy of the cache: its maps are written out.
    """
    if q.shape[-2] == 1:
        return _one_query(q, k, v, lam, scale, mask)
    first, second, d = q[:, 0::2], q[:, 1::2], q.shape[-1]
    padded = torch.stack((F.pad(first, (0, d)), F.pad(second, (d, 0))), dim=2).flatten(1, 2)
    joint = torch.cat((k[:, 0::2], k[:, 1::2]), dim=-1)
    both = attend(padded, joint, v, scale=scale, mask=mask)
    return both[:, :, 0::2] - lam.to(both.dtype) * both[:, :, 1::2]


def one_query_with_lse(
    q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`attention_with_lse` of a single query; its map is written out, and no key is copied."""
    B, G = k.shape[:2]
    scores = bmm_fp32(q.reshape(B * G, -1, q.shape[-1]), k.flatten(0, 1).mT) * scale
    scores = scores.view(B, G, -1, k.shape[2])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    out = scores.softmax(dim=-1).to(v.dtype) @ v
    return out.view(B, 1, -1, v.shape[-1]), scores.logsumexp(dim=-1).view(B, 1, -1)


def _one_query(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, scale: float, mask: Tensor | None
) -> Tensor:
    """Both maps of a single query in float32 at least, from keys that lie apart."""
    B, G = v.shape[:2]
    rows = q.reshape(B, G, -1, 2, q.shape[-1]).transpose(2, 3)
    scores = bmm_fp32(rows.flatten(0, 2), k.flatten(0, 1).mT) * scale
    scores = scores.view(B, G, 2, -1, k.shape[2])
    if mask is not None:
        scores = scores.masked_fill(~mask.unsqueeze(1), -math.inf)
    first, second = scores.softmax(dim=-1).unbind(2)
    weights = torch.addcmul(first, second, lam, value=-1).to(v.dtype)
    out: Tensor = weights @ v
    return out.view(B, 1, -1, v.shape[-1])
