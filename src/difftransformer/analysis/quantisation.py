"""Fake quantisation of attention logits: rounded to a grid, still stored as floats.

Dynamic absmax: a group of logits is divided by its largest magnitude, rounded to 2^(bits - 1) - 1
steps on either side of zero, and multiplied back (DIFF paper, section 3.7; it does not say over
which group).

Shapes: B = batch, M = softmax maps, T = queries, S = keys.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from difftransformer.errors import BackendError
from difftransformer.models.attention.base import Attention
from difftransformer.models.kernels.eager import Tap, tapped

Granularity = Literal["tensor", "head", "row"]
_GROUPS: dict[Granularity, tuple[int, ...]] = {
    "tensor": (0, 1, 2, 3),
    "head": (2, 3),
    "row": (3,),
}


def absmax_tap(bits: int, granularity: Granularity) -> Tap:
    """Return a tap for `kernels.eager.tapped` that quantises the logits that are attended to.

    Args:
        bits: Bits of a logit, its sign among them; at least 2.
        granularity: What shares a largest magnitude: all logits of a call (``tensor``; under it the
            result depends on the batch), those of one sequence and map, or those of one query.
    """
    assert bits >= 2, bits
    steps = 2 ** (bits - 1) - 1

    def tap(logits: Tensor, allowed: Tensor) -> Tensor:
        seen = torch.where(allowed, logits, 0.0)
        largest = seen.abs().amax(dim=_GROUPS[granularity], keepdim=True)
        step = torch.where(largest > 0, largest, 1.0) / steps
        rounded: Tensor = (seen / step).round_().mul_(step)
        return rounded

    return tap


@contextmanager
def rounded_logits(model: nn.Module, bits: int, granularity: Granularity) -> Iterator[None]:
    """Let every attention layer compute with logits that `absmax_tap` has rounded.

    Raises:
        BackendError: in the forward pass of a layer that hands out none.
    """
    tap, rounded = absmax_tap(bits, granularity), False

    def noticed(logits: Tensor, allowed: Tensor) -> Tensor:
        nonlocal rounded
        rounded = True
        return tap(logits, allowed)

    def require(layer: Attention, arguments: Any, output: Any) -> None:
        nonlocal rounded
        if not rounded:
            raise BackendError(
                f"{type(layer).__name__} with backend {layer.backend} hands out no attention "
                "logits, so they cannot be rounded; take backend eager, or leave attention_logits "
                "out of `what`"
            )
        rounded = False

    layers = [module for module in model.modules() if isinstance(module, Attention)]
    hooks = [layer.register_forward_hook(require) for layer in layers]
    try:
        with tapped(noticed):
            yield
    finally:
        for hook in hooks:
            hook.remove()
