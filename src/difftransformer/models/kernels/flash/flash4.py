"""flash-attn's fourth generation as an operation of torch, which a compiler takes as it is.

The package offers an autograd Function that compiles kernels as it goes: torch.compile would look
into that. Shapes: B = batch, T = queries, S = keys, H = heads, G = key/value heads, d = width of a
key, e = of a value; as flash-attn has them, rows before heads.
"""

from typing import Any

import torch
from torch import Tensor

from difftransformer.models.autograd import no_double_backward


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, softmax_scale: float, causal: bool, deterministic: bool
) -> Tensor:
    """As ``flash_attn_func`` of q [B, T, H, d], k [B, S, G, d], v [B, S, G, e]: [B, T, H, e]."""
    assert causal
    out: Tensor = _attend(q, k, v, softmax_scale, deterministic)[0]
    return out


@torch.library.custom_op("difftransformer::flash_attention_4", mutates_args=())
def _attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float, deterministic: bool
) -> tuple[Tensor, Tensor]:
    """Returns the output and its log-sum-exp [B, H, T], in float32."""
    from flash_attn.cute.interface import _flash_attn_fwd

    out, lse, *_ = _flash_attn_fwd(q, k, v, softmax_scale=scale, causal=True, return_lse=True)
    return out, lse


@_attend.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, scale: float, deterministic: bool) -> tuple[Tensor, Tensor]:
    B, T, H, _ = q.shape
    return q.new_empty(B, T, H, v.shape[-1]), q.new_empty(B, H, T, dtype=torch.float32)


@torch.library.custom_op("difftransformer::flash_attention_4_backward", mutates_args=())
def _differentiate(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    deterministic: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v."""
    from flash_attn.cute.interface import _flash_attn_bwd

    made = q_grad, k_grad, v_grad = tuple(torch.empty_like(x) for x in (q, k, v))
    given: dict[str, Any] = dict(zip(("dq", "dk", "dv"), made, strict=True))
    given |= {"softmax_scale": scale, "causal": True, "deterministic": deterministic}
    _flash_attn_bwd(q, k, v, out, grad, lse, **given)
    return q_grad, k_grad, v_grad


@_differentiate.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    q_grad, k_grad, v_grad = (torch.empty_like(x) for x in (q, k, v))
    return q_grad, k_grad, v_grad


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, ctx.scale, ctx.deterministic = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


@no_double_backward
def _backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    q, k, v, out, lse = ctx.saved_tensors
    if grad is None:
        grad = torch.zeros_like(out)
    grads = _differentiate(grad.contiguous(), q, k, v, out, lse, ctx.scale, ctx.deterministic)
    return *grads, None, None


_attend.register_autograd(_backward, setup_context=_keep)
