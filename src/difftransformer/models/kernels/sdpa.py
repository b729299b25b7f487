"""PyTorch's scaled_dot_product_attention (SDPA), on CPU and GPU.

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
PADDING_COLUMNS = 8
"""Columns that the log-sum-exp's backward pass adds: it needs one, alignment needs eight."""


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """Compute softmax attention (`Kernel.attention`) with SDPA.

    A single query, as in decoding, needs no causal mask: the heads of a group are then passed as
    queries of one head, so keys and values are read once.
    """
    if q.shape[-2] == 1 and q.shape[1] != k.shape[1]:
        grouped = q.reshape(k.shape[0], k.shape[1], -1, q.shape[-1])
        out = F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask, scale=scale)
        return out.reshape(len(q), 1, q.shape[1], -1)
    T, S = q.shape[-2], k.shape[-2]
    if mask is None and 1 < T < S:
        mask = causal_mask(T, S, q.device)
    if q.is_cuda and (mask is not None or q.dtype == torch.float32):
        # No fused GPU kernel shares keys with a mask or in float32; maps would be materialized.
        k, v = repeat_kv(k, q.shape[1]), repeat_kv(v, q.shape[1])
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=_is_causal(T, mask), scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )  # fmt: skip
    return out.transpose(1, 2)


def _is_causal(T: int, mask: Tensor | None) -> bool:
    """Return SDPA's is_causal, which would let a single query attend only to the first key."""
    if T == 1:  # a branch: when compiling, a length compares to a symbol and not to a bool
        return False
    return mask is None


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute softmax attention and its log-sum-exp (`Kernel.attention_with_lse`).

    SDPA does not return the log-sum-exp. On the CPU this calls torch's private operation behind
    SDPA, or `eager` if torch lacks it; on other devices FlexAttention, except for a single query.
    """
    if q.device.type != "cpu" and q.shape[-2] == 1:
        return single_query_with_lse(q, k, v, scale, mask)
    if q.device.type != "cpu":
        return flex.attention_with_lse(q, k, v, scale=scale, mask=mask)
    if not _lse_op_works():
        return eager.attention_with_lse(q, k, v, scale=scale, mask=mask)
    T, S = q.shape[-2], k.shape[-2]
    if mask is None and 1 < T < S:
        mask = causal_mask(T, S, q.device)
    if mask is not None:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -math.inf)
        mask = mask.view(-1, 1, T, S)
    k, v = repeat_kv(k, q.shape[1]), repeat_kv(v, q.shape[1])
    out, lse = _AttentionWithLse.apply(q, k, v, mask, scale)  # type: ignore[no-untyped-call]
    return out.transpose(1, 2), lse.transpose(1, 2)


def _lse_op_works() -> bool:
    """Return whether torch has the private operation, with correct output and gradients."""
    return _cached_lse_check()


_lse_op_works._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as in `linear`


@cache
def _cached_lse_check() -> bool:
    correct = run_in_thread(_check_lse_op)
    if not correct:
        logger.warning(
            f"torch {torch.__version__} has no usable attention with log-sum-exp: materializing "
            "attention maps, which is slower; pyproject.toml has a tested release"
        )
    return correct


def _check_lse_op() -> bool:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, 3, 8, generator=generator).requires_grad_() for _ in range(3))

    def with_grads(out: Tensor, lse: Tensor) -> list[Tensor]:
        factors = torch.arange(24.0).view_as(out)
        return [out, lse, *torch.autograd.grad((out * factors).sum() + 3 * lse.sum(), (q, k, v))]

    expected = with_grads(*eager.attention_with_lse(q, k, v, scale=0.5, mask=None))
    try:
        out, lse = _AttentionWithLse.apply(q, k, v, None, 0.5)  # type: ignore[no-untyped-call]
        actual = with_grads(out.transpose(1, 2), lse.transpose(1, 2))
    except (AttributeError, RuntimeError, TypeError):
        return False
    return all(torch.allclose(a, b, atol=1e-4) for a, b in zip(actual, expected, strict=True))


class _AttentionWithLse(torch.autograd.Function):
    """q, k, v [B, H, *, d] -> out [B, H, T, d] and lse [B, H, T].

    With A = softmax, P = dO V' and D = rowsum(dO * O), the gradient of the scores is A * (P - D +
    dlse). SDPA's backward computes A * (P - D). It gets values with one more column, of ones,
    whose output is passed as zero with the gradient dlse: that adds dlse to P and nothing to D.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float
    ) -> tuple[Tensor, Tensor]:
        is_causal = _is_causal(q.shape[-2], mask)
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
        padded = [F.pad(x, (0, PADDING_COLUMNS)) for x in (out_grad, q, k, v, out)]
        padded[0][..., d] = lse_grad.to(out_grad.dtype)
        padded[3][..., d] = 1.0
        grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *padded, lse, 0.0, ctx.is_causal, attn_mask=mask, scale=ctx.scale
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
    """Compute differential attention (`Kernel.differential_attention`) with SDPA.

    Queries and keys are padded to the width of the values, since SDPA is slow for wider values.

    One call of ``attend`` computes both maps of a head: queries [q1, 0] and [0, q2] share the
    joint keys [k1, k2]. For a single query, as in decoding, joint keys would copy the cache, so its
    maps are materialized.
    """
    if q.shape[-2] == 1:
        return _single_query(q, k, v, lam, scale, mask)
    q1, q2, d = q[:, 0::2], q[:, 1::2], q.shape[-1]
    padded = torch.stack((F.pad(q1, (0, d)), F.pad(q2, (d, 0))), dim=2).flatten(1, 2)
    joint = torch.cat((k[:, 0::2], k[:, 1::2]), dim=-1)
    attn = attend(padded, joint, v, scale=scale, mask=mask)
    return attn[:, :, 0::2] - lam.to(attn.dtype) * attn[:, :, 1::2]


def single_query_with_lse(
    q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute `attention_with_lse` of a single query from its materialized map, copying no keys."""
    B, G = k.shape[:2]
    scores = bmm_fp32(q.reshape(B * G, -1, q.shape[-1]), k.flatten(0, 1).mT) * scale
    scores = scores.view(B, G, -1, k.shape[2])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    out = scores.softmax(dim=-1).to(v.dtype) @ v
    return out.view(B, 1, -1, v.shape[-1]), scores.logsumexp(dim=-1).view(B, 1, -1)


def _single_query(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, scale: float, mask: Tensor | None
) -> Tensor:
    """Return `differential_attention` of a single query by maps in float32 or wider."""
    B, G = v.shape[:2]
    grouped = q.reshape(B, G, -1, 2, q.shape[-1]).transpose(2, 3)
    scores = bmm_fp32(grouped.flatten(0, 2), k.flatten(0, 1).mT) * scale
    scores = scores.view(B, G, 2, -1, k.shape[2])
    if mask is not None:
        scores = scores.masked_fill(~mask.unsqueeze(1), -math.inf)
    map1, map2 = scores.softmax(dim=-1).unbind(2)
    weights = torch.addcmul(map1, map2, lam, value=-1).to(v.dtype)
    out: Tensor = weights @ v
    return out.view(B, 1, -1, v.shape[-1])
