"""RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467): x / sqrt(mean(x^2) + eps) * weight."""

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
    """RMSNorm over the last dimension, with one learned weight per entry."""

    eps: float

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        """Return ``x`` [..., width], normalized and multiplied by the weight and ``scale``."""
        weight = self.weight if scale == 1.0 else self.weight * scale
        if use_custom_backward(x):
            out: Tensor = _RMSNorm.apply(x, weight, self.eps)  # type: ignore[no-untyped-call]
            return out
        # Autocast would copy to float32, and torch has no kernel for inputs of two types.
        with no_autocast(x):
            return F.rms_norm(x, self.normalized_shape, weight.to(x.dtype), self.eps)


def norm_and_scale(x: Tensor, norm: RMSNorm | None, scale: float) -> Tensor:
    """Return ``norm(x) * scale``, or ``x * scale`` if ``norm`` is None."""
    out: Tensor = x * scale if norm is None else norm(x, scale)
    return out


class _RMSNorm(torch.autograd.Function):
    """With u = x / rms(x) and g = grad * weight: dx = (g - u mean(g u)) / rms(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        full = at_least_fp32(x)
        norm = torch.linalg.vector_norm(full, dim=-1, keepdim=True)
        inverse = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, inverse)
        out: Tensor = (full * inverse).mul_(weight).to(x.dtype)
        return out

    @staticmethod
    @no_double_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, inverse = ctx.saved_tensors
        full, full_weight = at_least_fp32(x), at_least_fp32(weight)
        product = at_least_fp32(grad) * full
        rows = product.flatten(0, -2)
        with no_autocast(x):
            weight_grad = inverse.view(1, -1) @ rows
            mean = (rows @ full_weight).view_as(inverse).mul_(inverse.pow(3)).div_(-x.shape[-1])
        x_grad = torch.mul(grad, full_weight, out=product).mul_(inverse).addcmul_(full, mean)
        return x_grad.to(x.dtype), weight_grad.view_as(weight).to(weight.dtype), None
