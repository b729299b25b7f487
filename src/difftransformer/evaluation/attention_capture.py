"""Attention weights and head outputs of any variant, captured by hooks (attention capture).

Shapes: B = windows, T = positions, H = output heads, e = width of a head's output.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from difftransformer.convert.attention_hooks import (
    attention_layers,
    capture_attention,
    forward_pre_hooks,
)
from difftransformer.evaluation.scorer import Scorer
from difftransformer.models.attention.maps import AttentionBlock

HeadCallback = Callable[[int, str, Tensor], None]
"""Arguments: the layer index, BEFORE or AFTER, and the heads' outputs [B, T, H, e]."""

BEFORE, AFTER = "before", "after"
"""Head outputs before and after the per-head norm; equal in layers without such a norm."""


def iter_attention_blocks(
    scorer: Scorer, tokens: Tensor, block: int
) -> Iterator[Iterator[AttentionBlock]]:
    """Yield the attention weights of all layers, for one block of queries after the other.

    The model runs once on the tokens. Each yielded iterator goes over the layers and computes the
    weights of a layer when it reaches it, so that memory holds the queries and keys of all layers,
    but no full attention map.

    Args:
        scorer: The model.
        tokens: Token ids of B windows of T positions, [B, T].
        block: Number of queries per block.

    Raises:
        CheckpointError: The attention maps of a pretrained model cannot be read.
    """
    with capture_attention(scorer.model, block) as layers:
        scorer.hidden_states(tokens)
    for _ in range(0, tokens.shape[1], block):
        yield map(_next_block, layers)


def full_attention_maps(scorer: Scorer, ids: Sequence[int]) -> Tensor:
    """Return a model's signed attention weights on a short prompt, in half precision.

    The shape is [L, H, S, S] for L layers, H heads, and S tokens as queries and as keys.

    Raises:
        CheckpointError: The attention maps of a pretrained model cannot be read.
    """
    tokens = torch.tensor([[*ids]], device=scorer.device)
    (layers,) = iter_attention_blocks(scorer, tokens, len(ids))
    return torch.stack([layer.weights[0].half().cpu() for layer in layers])


@torch.inference_mode()
def _next_block(blocks: Iterator[AttentionBlock]) -> AttentionBlock:
    return next(blocks)


@contextmanager
def capture_head_outputs(model: Any, heads: int, callback: HeadCallback) -> Iterator[None]:
    """Context in which ``callback`` receives each layer's head outputs, before and after its norm.

    In every forward pass the callback runs twice per layer, as (layer index, `BEFORE` or `AFTER`,
    head outputs [B, T, H, e]): first with the inputs of the per-head norm, then with the inputs of
    the output projection. ``heads`` is H, the number of output heads of a layer of ``model``.
    """

    def hook(index: int, positions: tuple[str, ...]) -> Callable[[nn.Module, Any], None]:
        def capture(module: nn.Module, inputs: Any) -> None:
            outputs: Tensor = inputs[0]
            for position in positions:
                callback(index, position, outputs.reshape(*outputs.shape[:2], heads, -1))

        return capture

    hooks: list[tuple[nn.Module, Callable[..., None]]] = []
    for layer in attention_layers(model):
        norm, projection = getattr(layer, "head_norm", None), layer.o_proj
        if norm is None:
            hooks.append((projection, hook(layer.layer_index, (BEFORE, AFTER))))
        else:
            hooks.append((norm, hook(layer.layer_index, (BEFORE,))))
            hooks.append((projection, hook(layer.layer_index, (AFTER,))))
    with forward_pre_hooks(hooks):
        yield
