"""Cross-entropy that never holds the logits of all positions.

Shapes: N = positions, D = d_model, V = vocabulary, C = positions of one chunk.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def chunked_cross_entropy(
    hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int, weights: Tensor | None = None
) -> Tensor:
    """Return the weighted sum of token losses; without weights their mean.

    Gradients are taken chunk by chunk in the forward pass (Hsu et al. 2024, Liger Kernel), so that
    at most C x V logits exist at a time.

    Args:
        hidden: [N, D] final hidden states.
        weight: [V, D] output matrix.
        targets: [N] ids.
        chunk: C.
        weights: [N] factor of each position's loss; None is 1/N.

    Returns:
        Scalar in nats.
    """
    if weights is None:
        weights = hidden.new_full((len(targets),), 1 / len(targets), dtype=torch.float32)
    if len(targets) <= chunk:
        losses = F.cross_entropy(F.linear(hidden, weight).float(), targets, reduction="none")
        return losses @ weights
    if torch.is_autocast_enabled(hidden.device.type):
        kind = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight = hidden.to(kind), weight.to(kind)
    out: Tensor = _ChunkedCrossEntropy.apply(hidden, weight, targets, chunk, weights)
    return out


@torch.no_grad()
def token_losses(hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int) -> Tensor:
    """Return the loss of every position, [N] in nats, fp32; arguments as above."""
    parts = zip(hidden.split(chunk), targets.split(chunk), strict=True)
    return torch.cat(
        [F.cross_entropy(F.linear(h, weight).float(), t, reduction="none") for h, t in parts]
    )


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Loss and both gradients in one pass over the chunks."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int, weights: Tensor
    ) -> Tensor:
        total = hidden.new_zeros((), dtype=torch.float32)
        hidden_grad = torch.empty_like(hidden)
        weight_grad = torch.zeros_like(weight, dtype=torch.float32)
        for start in range(0, len(targets), chunk):
            part = slice(start, start + chunk)
            logits = (hidden[part] @ weight.T).float()
            log_norm = logits.logsumexp(-1)
            picked = logits.gather(-1, targets[part, None]).squeeze(-1)
            total += (log_norm - picked) @ weights[part]
            # d loss / d logits = softmax - one-hot, scaled by the position's weight
            slope = logits.sub_(log_norm[:, None]).exp_()
            slope.scatter_add_(-1, targets[part, None], torch.full_like(picked[:, None], -1.0))
            slope = slope.mul_(weights[part, None]).to(hidden.dtype)
            torch.mm(slope, weight, out=hidden_grad[part])
            weight_grad += slope.T @ hidden[part]
        ctx.save_for_backward(hidden_grad, weight_grad.to(weight.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden_grad, weight_grad = ctx.saved_tensors
        return hidden_grad * grads[0], weight_grad * grads[0], None, None, None
