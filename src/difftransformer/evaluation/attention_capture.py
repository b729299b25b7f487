"""Watching the attention layers of a model from outside, whatever their variant.

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

SeeHeads = Callable[[int, str, Tensor], None]
"""Layer index, BEFORE or AFTER, and the heads' outputs [B, T, H, e]."""

BEFORE, AFTER = "before", "after"
"""What a headwise norm gets, and what the output projection gets; without a norm both are one."""


def iter_attention_blocks(
    scorer: Scorer, tokens: Tensor, block: int
) -> Iterator[Iterator[AttentionBlock]]:
    """Run a model on [B, T] tokens; for each block of queries yield the rows of every layer.

    The rows of a layer are made when they are asked for, so that no whole map ever exists; beyond
    them queries and keys of all layers are kept.

    Args:
        scorer: The model, ours or one from elsewhere.
        tokens: [B, T].
        block: Queries whose rows exist at one time.

    Raises:
        CheckpointError: The maps of a model from elsewhere cannot be read.
    """
    with capture_attention(scorer.model, block) as layers:
        scorer.hidden_states(tokens)
    for _ in range(0, tokens.shape[1], block):
        yield map(_following, layers)


def full_attention_maps(scorer: Scorer, ids: Sequence[int]) -> Tensor:
    """Signed weights of every position of a short prompt, [L, H, S, S] in half precision.

    Raises:
        CheckpointError: The maps of a model from elsewhere cannot be read.
    """
    tokens = torch.tensor([[*ids]], device=scorer.device)
    (layers,) = iter_attention_blocks(scorer, tokens, len(ids))
    return torch.stack([one.weights[0].half().cpu() for one in layers])


@torch.inference_mode()
def _following(blocks: Iterator[AttentionBlock]) -> AttentionBlock:
    return next(blocks)


@contextmanager
def capture_head_outputs(model: Any, heads: int, see: SeeHeads) -> Iterator[None]:
    """Let ``see`` have the output of every one of H heads, before its norm and the projection.

    It is called once for each layer and kind; BEFORE comes first.
    """

    def hook(index: int, kinds: tuple[str, ...]) -> Callable[[nn.Module, Any], None]:
        def look(module: nn.Module, inputs: Any) -> None:
            outputs: Tensor = inputs[0]
            for kind in kinds:
                see(index, kind, outputs.reshape(*outputs.shape[:2], heads, -1))

        return look

    found: list[tuple[nn.Module, Callable[..., None]]] = []
    for layer in attention_layers(model):
        norm, projection = getattr(layer, "head_norm", None), layer.o_proj
        if norm is None:
            found.append((projection, hook(layer.layer_index, (BEFORE, AFTER))))
        else:
            found.append((norm, hook(layer.layer_index, (BEFORE,))))
            found.append((projection, hook(layer.layer_index, (AFTER,))))
    with forward_pre_hooks(found):
        yield
