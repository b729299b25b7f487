"""Cross-entropy that never holds the logits of all positions.

Shapes: N = positions, D = d_model, V = vocabulary, C = positions of one chunk.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from difftransformer.models.autograd import no_autocast, no_double_backward
from difftransformer.models.linear import linear_no_grad, weight_grad_fp32

Differentiate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

CACHED_LOGITS = 2**19
"""Logits of a chunk on the CPU, so that they stay in a core's cache (2 MiB) ..."""
MIN_ROWS = 256
"""... unless that leaves fewer positions, where products with the weight would be the slow part."""


def chunked_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    chunk: int,
    weights: Tensor | None = None,
    *,
    compiled: bool = False,
) -> Tensor:
    """Return the weighted sum of token losses; without weights their mean.

    The gradients are computed chunk by chunk in the forward pass (Liger Kernel, arXiv 2410.10989),
    so at most C x V logits exist at a time, and the logits are computed once. Under autocast the
    matrix products run in its precision; losses and the weight's gradient, whose products are not
    rounded chunk by chunk, in float32.

    Args:
        hidden: [N, D] final hidden states.
        weight: [V, D] output matrix.
        targets: [N] ids.
        chunk: C, positions whose logits exist at one time at most.
        weights: [N] factor of each position's loss; None is 1/N.
        compiled: Let torch.compile fuse what lies between the products; for GPUs.

    Returns:
        Scalar in nats, float32.
    """
    if weights is None:
        weights = torch.full((len(targets),), 1 / len(targets), device=hidden.device)
    if not torch.is_grad_enabled():
        return _weighted_sum(token_losses(hidden, weight, targets, chunk), weights)
    out: Tensor = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, weight, targets, chunk, weights, compiled
    )
    return out


@torch.no_grad()
def token_losses(hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int) -> Tensor:
    """Return the loss of every position, [N] in nats, float32; arguments as above."""
    hidden, weight = _in_autocast_precision(hidden, weight)
    losses = hidden.new_empty(len(targets), dtype=torch.float32)
    for part in _chunks(hidden, weight, chunk):
        logits = linear_no_grad(hidden[part], weight).float()
        losses[part] = F.cross_entropy(logits, targets[part], reduction="none")
    return losses


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Loss and both gradients in one pass over the chunks."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        chunk: int,
        weights: Tensor,
        compiled: bool,
    ) -> Tensor:
        ctx.dtypes = hidden.dtype, weight.dtype
        hidden, weight = _in_autocast_precision(hidden, weight)
        total = torch.zeros((), device=hidden.device)
        hidden_grad = torch.empty_like(hidden)
        weighs = ctx.needs_input_grad[1]  # not where the matrix is frozen
        weight_grad = None
        differentiate = _fused() if compiled else _losses_and_slope
        for part in _chunks(hidden, weight, chunk):
            losses, slope = differentiate(linear_no_grad(hidden[part], weight), targets[part])
            total += _weighted_sum(losses, weights[part])
            # The position's weight goes to the other factor of each product: D is less than V.
            factor = weights[part, None]
            torch.mul(linear_no_grad(slope, weight.T), factor, out=hidden_grad[part])
            if weighs:
                rows = (hidden[part] * factor).to(hidden.dtype)
                part_grad = weight_grad_fp32(slope, rows)
                weight_grad = part_grad if weight_grad is None else weight_grad.add_(part_grad)
        ctx.save_for_backward(hidden_grad, weight_grad)
        return total

    @staticmethod
    @no_double_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden_grad, weight_grad = ctx.saved_tensors
        of_hidden, of_weight = ctx.dtypes
        hidden_grad = (hidden_grad * grad.to(hidden_grad.dtype)).to(of_hidden)
        if weight_grad is not None:
            weight_grad = (weight_grad.contiguous() * grad).to(of_weight)
        return hidden_grad, weight_grad, None, None, None, None


def _weighted_sum(losses: Tensor, weights: Tensor) -> Tensor:
    """Sum in float32: autocast would round both to its own precision."""
    with no_autocast(losses):
        return losses @ weights


def _losses_and_slope(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return losses [C] in float32 and d loss / d logits [C, V], softmax - one-hot, as logits are.

    log(sum(exp(x))) is max(x) - log(max(softmax(x))): stable, and free of a second exponential.
    The slope takes the memory of float32 logits.
    """
    dtype, logits = logits.dtype, logits.float()
    rows = targets.unsqueeze(-1)
    picked, highest = logits.gather(-1, rows).squeeze(-1), logits.amax(-1)
    slope = torch.softmax(logits, dim=-1, out=logits)
    losses = (highest - picked) - slope.amax(-1).log()
    slope.scatter_add_(-1, rows, slope.new_full((), -1.0).expand(rows.shape))
    return losses, slope.to(dtype)


def one_pass_losses_and_slope(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """As `_losses_and_slope`, in terms that a compiler makes one kernel of: float32 stays in it."""
    full = logits.float()
    lse = full.logsumexp(-1, keepdim=True)
    rows = targets.unsqueeze(-1)
    losses = (lse - full.gather(-1, rows)).squeeze(-1)
    is_target = torch.arange(full.shape[-1], device=full.device) == rows
    return losses, ((full - lse).exp() - is_target.float()).to(logits.dtype)


@cache
def _fused() -> Differentiate:
    """One graph for all chunks, the short last one, too."""
    return torch.compile(one_pass_losses_and_slope, dynamic=True, fullgraph=True)


def chunk_rows(chunk: int, vocab_size: int, device_type: str) -> int:
    """Return the positions whose logits exist at one time, where ``chunk`` may."""
    if device_type == "cpu":
        return min(chunk, max(MIN_ROWS, CACHED_LOGITS // vocab_size))
    return chunk


def _chunks(hidden: Tensor, weight: Tensor, chunk: int) -> Iterator[slice]:
    chunk = chunk_rows(chunk, len(weight), hidden.device.type)
    for start in range(0, len(hidden), chunk):
        yield slice(start, start + chunk)


def _in_autocast_precision(*tensors: Tensor) -> list[Tensor]:
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return list(tensors)
    return [tensor.to(torch.get_autocast_dtype(kind)) for tensor in tensors]
