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
"""Layer index, BEFORE or AFTER, and the heads' outputs [B, T, H, e]."""

BEFORE, AFTER = "before", "after"
"""Inputs of the per-head norm and of the output projection; without a norm they are the same."""


def iter_attention_blocks(
    scorer: Scorer, tokens: Tensor, block: int
) -> Iterator[Iterator[AttentionBlock]]:
    """Run a model on tokens; for each block of queries yield the attention weights of every layer.

    The weights of a layer are computed on iteration, so that no full attention map is in memory,
    only queries and keys of all layers.

    Args:
        scorer: The model.
        tokens: [B, T].
        block: Queries whose attention weights exist at one time.

    Raises:
        CheckpointError: The attention maps of a pretrained model cannot be read.
    """
    with capture_attention(scorer.model, block) as layers:
        scorer.hidden_states(tokens)
    for _ in range(0, tokens.shape[1], block):
        yield map(_next_block, layers)


def full_attention_maps(scorer: Scorer, ids: Sequence[int]) -> Tensor:
    """Return the signed attention weights of a short prompt, [L, H, S, S], in half precision.

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
    """Call ``callback`` with the outputs of the H heads, BEFORE and AFTER the per-head norm.

    The callback runs once per layer and position, BEFORE first.
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
