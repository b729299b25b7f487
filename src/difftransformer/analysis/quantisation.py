"""Fake quantisation of attention logits: rounded to a grid, still stored as floats.

Dynamic absmax: a group of logits is divided by its largest magnitude, rounded to 2^(bits - 1) - 1
steps on either side of zero, and multiplied back (DIFF paper, section 3.7; it does not say over
which group).

Shapes: B = batch, M = softmax maps, T = queries, S = keys.
"""

from typing import Literal

import torch
from torch import Tensor

from difftransformer.models.kernels.eager import Tap

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
