"""The fused kernels as custom operations of torch, which torch.compile does not trace into.

Shapes are those of `models.kernels.Kernel`; M is the number of maps per head, 2 with a lam, else 1.
"""

import math
from typing import Any

import torch
from torch import Tensor

from difftransformer.models.kernels.fused.tiles import kernel_for, way_for


@torch.library.custom_op("difftransformer::fused_attention", mutates_args=())
def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lam: Tensor | None,
    mask: Tensor | None,
    scale: float,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute attention of one map per head, or of two if ``lam`` is given.

    Inputs are q [B, M H, T, d], k [B, M G, S, d], v [B, G, S, e], and lam, a scalar or None.

    Returns:
        The output [B, T, H, e]; the output of the second maps, which the backward pass needs, empty
        unless ``keep``; the log-sum-exp to base 2, [M, B, H, T] in float32.
    """
    from difftransformer.models.kernels.fused.launch import Call

    return Call(q, k, v, lam, mask, scale).attend(keep=keep)


@fused_attention.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lam: Tensor | None,
    mask: Tensor | None,
    scale: float,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    B, heads, T, _ = q.shape
    maps = 1 if lam is None else 2
    out = v.new_empty(B, T, heads // maps, v.shape[-1])
    second = torch.empty_like(out) if keep and maps == 2 else v.new_empty(0)
    return out, second, q.new_empty(maps, B, heads // maps, T, dtype=torch.float32)


@torch.library.custom_op("difftransformer::fused_attention_backward", mutates_args=())
def fused_attention_backward(
    grad: Tensor,
    lse_grad: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lam: Tensor | None,
    mask: Tensor | None,
    out: Tensor,
    second: Tensor,
    lse: Tensor,
    scale: float,
    way: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v, and of lam, a scalar in float32.

    ``lse_grad`` is the gradient of the log-sum-exp to base e. ``way`` is the variant of the
    backward pass, a key of `tiles.BACKWARD`.
    """
    from difftransformer.models.kernels.fused.launch import Call

    call = Call(q, k, v, lam, mask, scale)
    return call.differentiate(grad, lse_grad, out, second, lse, way=way)


@fused_attention_backward.register_fake
def _(
    grad: Tensor,
    lse_grad: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lam: Tensor | None,
    mask: Tensor | None,
    out: Tensor,
    second: Tensor,
    lse: Tensor,
    scale: float,
    way: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q_grad, k_grad, v_grad = (x.new_empty(x.shape) for x in (q, k, v))
    return q_grad, k_grad, v_grad, q.new_empty((), dtype=torch.float32)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v, lam, mask, ctx.scale, _ = inputs
    ctx.save_for_backward(q, k, v, lam, mask, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(
    ctx: Any, grad: Tensor | None, _: Tensor | None, lse_grad: Tensor | None
) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():
        raise NotImplementedError(
            "backend fused has no second derivative: leave create_graph=True out, or use eager"
        )
    q, k, v, lam, mask, out, second, lse = ctx.saved_tensors
    if grad is None:
        grad = torch.zeros_like(out)
    if lse_grad is not None:
        lse_grad = (lse_grad / math.log(2)).contiguous()
    maps = 1 if lam is None else 2
    kernel = kernel_for("queries", maps, q.shape[-1], v.shape[-1])
    q_grad, k_grad, v_grad, lam_grad = fused_attention_backward(
        grad, lse_grad, q, k, v, lam, mask, out, second, lse, ctx.scale, way_for(kernel, q.device)
    )
    return q_grad, k_grad, v_grad, None if lam is None else lam_grad.to(lam.dtype), None, None, None


fused_attention.register_autograd(_backward, setup_context=_keep)
