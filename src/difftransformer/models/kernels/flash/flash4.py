"""flash-attn 4 as a custom operation of torch, which torch.compile does not trace into.

The package offers an autograd Function that compiles kernels as it runs. Shapes: B = batch,
T = queries, S = keys, H = heads, G = key/value heads, d = width of a key, e = of a value; positions
before heads, as in flash-attn.
"""

from typing import Any

import torch
from torch import Tensor

from difftransformer.models.autograd import no_double_backward


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, softmax_scale: float, causal: bool, deterministic: bool
) -> Tensor:
    """Call ``flash_attn_func``: q [B, T, H, d], k [B, S, G, d], v [B, S, G, e] -> [B, T, H, e]."""
    assert causal
    out: Tensor = _attend(q, k, v, softmax_scale, deterministic)[0]
    return out


@torch.library.custom_op("difftransformer::flash_attention_4", mutates_args=())
def _attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float, deterministic: bool
) -> tuple[Tensor, Tensor]:
    """Return the output and its log-sum-exp [B, H, T], in float32."""
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
    """Return the gradients of q, k and v."""
    from flash_attn.cute.interface import _flash_attn_bwd

    grads = q_grad, k_grad, v_grad = tuple(torch.empty_like(x) for x in (q, k, v))
    options: dict[str, Any] = dict(zip(("dq", "dk", "dv"), grads, strict=True))
    options |= {"softmax_scale": scale, "causal": True, "deterministic": deterministic}
    _flash_attn_bwd(q, k, v, out, grad, lse, **options)
    return q_grad, k_grad, v_grad


@_differentiate.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    q_grad, k_grad, v_grad = (torch.empty_like(x) for x in (q, k, v))
    return q_grad, k_grad, v_grad


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
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


_attend.register_autograd(_backward, setup_context=_setup_context)
