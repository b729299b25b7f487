"""SwiGLU (Shazeer 2020, arXiv 2002.05202): (swish(x G) * x U) W, with G and U in one matrix.

Shapes: B = batch, T = positions, D = d_model, F = ffn_dim.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from difftransformer.models.gradients import by_hand, first_derivative
from difftransformer.models.matrices import Linear


class FeedForward(nn.Module):
    """The feed-forward half of a layer; rows of ``gate_up_proj``: gate [F], up [F]."""

    def __init__(self, d_model: int, ffn_dim: int) -> None:
        super().__init__()
        self.gate_up_proj = Linear(d_model, 2 * ffn_dim)
        self.down_proj = Linear(ffn_dim, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        out: Tensor = self.down_proj(gated(self.gate_up_proj(x)))
        return out


def gated(gate_up: Tensor) -> Tensor:
    """swish(gate) * up for [..., 2F] holding gate and up side by side: [..., F]."""
    if by_hand(gate_up):
        out: Tensor = _Gated.apply(gate_up)  # type: ignore[no-untyped-call]
        return out
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


class _Gated(torch.autograd.Function):
    """Keeps its input and swish(gate), and writes both gradients into one tensor."""

    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        swish = F.silu(gate)
        ctx.save_for_backward(gate_up, swish)
        return swish * up

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        gate_up, swish = ctx.saved_tensors
        gate, up = gate_up.chunk(2, dim=-1)
        out = torch.empty_like(gate_up)
        gate_grad, up_grad = out.chunk(2, dim=-1)
        torch.mul(grad, swish, out=up_grad)
        torch.ops.aten.silu_backward.grad_input(grad * up, gate, grad_input=gate_grad)
        return out
