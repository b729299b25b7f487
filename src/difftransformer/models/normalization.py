"""RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467): x / sqrt(mean(x^2) + eps) * gain."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from difftransformer.models.autograd import (
    at_least_fp32,
    no_autocast,
    no_double_backward,
    use_custom_backward,
)


class RMSNorm(nn.RMSNorm):
    """RMSNorm over the last dimension, with one gain for each of its entries."""

    eps: float

    def forward(self, x: Tensor, factor: float = 1.0) -> Tensor:
        """Normalize [..., width] and multiply by gain and ``factor``."""
        gain = self.weight if factor == 1.0 else self.weight * factor
        if use_custom_backward(x):
            out: Tensor = _RMSNorm.apply(x, gain, self.eps)  # type: ignore[no-untyped-call]
            return out
        with no_autocast(x):  # which would make a copy in float32; of two types torch has no kernel
            return F.rms_norm(x, self.normalized_shape, gain.to(x.dtype), self.eps)


def norm_and_scale(x: Tensor, norm: RMSNorm | None, factor: float) -> Tensor:
    """Return ``norm(x)``, or ``x`` where there is no norm, times ``factor``."""
    out: Tensor = x * factor if norm is None else norm(x, factor)
    return out


class _RMSNorm(torch.autograd.Function):
    """With u = x / rms(x) and g the incoming gradient times gain: dx = (g - u mean(g u)) / rms."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        full = at_least_fp32(x)
        norm = torch.linalg.vector_norm(full, dim=-1, keepdim=True)
        inverse = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, gain, inverse)
        out: Tensor = (full * inverse).mul_(gain).to(x.dtype)
        return out

    @staticmethod
    @no_double_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, gain, inverse = ctx.saved_tensors
        full, wide_gain = at_least_fp32(x), at_least_fp32(gain)
        product = at_least_fp32(grad) * full
        rows = product.flatten(0, -2)
        with no_autocast(x):
            gain_grad = inverse.view(1, -1) @ rows
            mean = (rows @ wide_gain).view_as(inverse).mul_(inverse.pow(3)).div_(-x.shape[-1])
        x_grad = torch.mul(grad, wide_gain, out=product).mul_(inverse).addcmul_(full, mean)
        return x_grad.to(x.dtype), gain_grad.view_as(gain).to(gain.dtype), None
