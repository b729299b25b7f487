"""Attention maps of a layer for analysis, in full or in blocks of queries.

Shapes as in `models.attention.base`; b = queries of a block.
"""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from difftransformer.models.attention.base import Attention
from difftransformer.models.kernels.eager import causal_mask
from difftransformer.models.rotary import Rope


class AttentionBlock(NamedTuple):
    """The rows of a layer's attention maps for b neighboring queries.

    Attributes:
        start: Position of the first query.
        weights: Attention weights of each head, signed, [B, H, b, start + b].
        component_maps: The positive and the subtracted map, each of the shape of ``weights``; None
            for heads with one map, or more than two.
        mask: Keys that each query attends to, bool [b, start + b]; all other weights are 0.
        layer: 0-based index of the layer.
    """

    start: int
    weights: Tensor
    component_maps: tuple[Tensor, Tensor] | None
    mask: Tensor
    layer: int


def attention_maps(layer: Attention, x: Tensor, rope: Rope) -> Tensor:
    """Return the signed attention weights of each head of a layer, [B, H, T, T].

    Causal and quadratic in memory; arguments as for `Attention.forward`.
    """
    q, k, _, extra = layer.project(x, rope)
    return layer.attention_weights(q, k, extra)


def iter_blocks(layer: Attention, x: Tensor, rope: Rope, size: int) -> Iterator[AttentionBlock]:
    """Return an iterator over a layer's attention maps in blocks of up to ``size`` queries (rows).

    Keys after a block's last query are left out. This call computes the queries
    and keys; the iterator computes each block when it is reached.
    """
    q, k, _, extra = layer.project(x, rope)
    extra = extra.clone()  # a view would keep the whole projection in memory
    T = x.shape[1]

    def block(start: int) -> AttentionBlock:
        stop = min(start + size, T)
        inputs = q[:, :, start:stop], k[:, :, :stop], extra[:, start:stop]
        weights, components = layer.attention_weights(*inputs), layer.component_maps(*inputs)
        mask = causal_mask(stop - start, stop, x.device)
        return AttentionBlock(start, weights, components, mask, layer.layer_index)

    return map(block, range(0, T, size))
