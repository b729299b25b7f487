"""Chunked cross-entropy: the logits of all positions never exist at once.

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

LossesAndGrad = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

CACHED_LOGITS = 2**19
"""Number of logits per chunk that fit into the cache of a CPU core (2 MiB)."""
MIN_ROWS = 256
"""Minimum positions per chunk on a CPU; with fewer, products with the weight dominate."""


def chunked_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    chunk: int,
    weights: Tensor | None = None,
    *,
    compiled: bool = False,
) -> Tensor:
    """Return the weighted sum (by default the mean) of the cross-entropy of N tokens.

    The gradients are computed chunk by chunk in the forward pass (Liger Kernel, arXiv 2410.10989),
    so at most C x V logits exist at a time, and the logits are computed once. Under autocast the
    matrix multiplications run in its precision; the losses and the weight's gradient, which is not
    rounded chunk by chunk, are in float32.

    Args:
        hidden: Final hidden states [N, D].
        weight: Output matrix [V, D].
        targets: Token ids to predict, [N].
        chunk: C, the largest number of positions whose logits exist at a time.
        weights: Factor of each position's loss, [N]; None: 1/N.
        compiled: Whether torch.compile fuses the loss and its gradient, for GPUs.

    Returns:
        The loss, a scalar in nats, float32.
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
    """Return the cross-entropy of each position, [N] in nats, float32.

    The arguments are those of `chunked_cross_entropy`.
    """
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
        needs_weight_grad = ctx.needs_input_grad[1]
        weight_grad = None
        losses_and_grad = _compiled_losses_and_grad() if compiled else _losses_and_grad
        for part in _chunks(hidden, weight, chunk):
            logits = linear_no_grad(hidden[part], weight)
            losses, logits_grad = losses_and_grad(logits, targets[part])
            total += _weighted_sum(losses, weights[part])
            # The position's weight multiplies the [*, D] factor, which is smaller than [*, V].
            factor = weights[part, None]
            torch.mul(linear_no_grad(logits_grad, weight.T), factor, out=hidden_grad[part])
            if needs_weight_grad:
                rows = (hidden[part] * factor).to(hidden.dtype)
                part_grad = weight_grad_fp32(logits_grad, rows)
                weight_grad = part_grad if weight_grad is None else weight_grad.add_(part_grad)
        ctx.save_for_backward(hidden_grad, weight_grad)
        return total

    @staticmethod
    @no_double_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden_grad, weight_grad = ctx.saved_tensors
        hidden_dtype, weight_dtype = ctx.dtypes
        hidden_grad = (hidden_grad * grad.to(hidden_grad.dtype)).to(hidden_dtype)
        if weight_grad is not None:
            weight_grad = (weight_grad.contiguous() * grad).to(weight_dtype)
        return hidden_grad, weight_grad, None, None, None, None


def _weighted_sum(losses: Tensor, weights: Tensor) -> Tensor:
    """Return the dot product in float32: autocast would round both factors."""
    with no_autocast(losses):
        return losses @ weights


def _losses_and_grad(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return losses [C] in float32 and their gradients [C, V], softmax - one-hot, in logits' dtype.

    log(sum(exp(x))) is max(x) - log(max(softmax(x))): stable, without a second exponential. The
    gradient overwrites the float32 logits.
    """
    dtype, logits = logits.dtype, logits.float()
    rows = targets.unsqueeze(-1)
    target_logit, max_logit = logits.gather(-1, rows).squeeze(-1), logits.amax(-1)
    grad = torch.softmax(logits, dim=-1, out=logits)
    losses = (max_logit - target_logit) - grad.amax(-1).log()
    grad.scatter_add_(-1, rows, grad.new_full((), -1.0).expand(rows.shape))
    return losses, grad.to(dtype)


def fused_losses_and_grad(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results of `_losses_and_grad`, written in a form that a compiler can fuse."""
    full = logits.float()
    lse = full.logsumexp(-1, keepdim=True)
    rows = targets.unsqueeze(-1)
    losses = (lse - full.gather(-1, rows)).squeeze(-1)
    is_target = torch.arange(full.shape[-1], device=full.device) == rows
    return losses, ((full - lse).exp() - is_target.float()).to(logits.dtype)


@cache
def _compiled_losses_and_grad() -> LossesAndGrad:
    """Return one compiled graph for all chunks, including a shorter last one."""
    return torch.compile(fused_losses_and_grad, dynamic=True, fullgraph=True)


def chunk_rows(chunk: int, vocab_size: int, device_type: str) -> int:
    """Return the number of positions per chunk: ``chunk``, or fewer on a CPU, to fit its cache."""
    if device_type == "cpu":
        return min(chunk, max(MIN_ROWS, CACHED_LOGITS // vocab_size))
    return chunk


def _chunks(hidden: Tensor, weight: Tensor, chunk: int) -> Iterator[slice]:
    chunk = chunk_rows(chunk, len(weight), hidden.device.type)
    for start in range(0, len(hidden), chunk):
        yield slice(start, start + chunk)


def _in_autocast_precision(*tensors: Tensor) -> list[Tensor]:
    device_type = tensors[0].device.type
    if not torch.is_autocast_enabled(device_type):
        return list(tensors)
    return [tensor.to(torch.get_autocast_dtype(device_type)) for tensor in tensors]
