"""Activation checkpointing of a layer: full ("layer") or selective.

"layer" saves only the layer's input and computes the layer again in the backward pass. "selective"
also saves the outputs of matrix multiplications and of fused attention, by far the most work;
norms, gates, RoPE and sums are computed again. Attention maps are never saved: they are the larger
part of the memory if a backend materializes them.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

SAVED_OPERATIONS = frozenset(
    {
        "aten::mm",
        "aten::addmm",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "difftransformer::flash_attention_4",
        "difftransformer::fused_attention",
        "flash_attn::_flash_attn_forward",
        "flash_attn_3::_flash_attn_forward",
        "flash_attn_3::fwd",
        "mkldnn::_linear_pointwise",
    }
)
"""Operations whose outputs selective activation checkpointing saves."""


def activation_checkpoint(layer: nn.Module, mode: str, *inputs: Any) -> Tensor:
    """Return ``layer(*inputs)``, recomputing its activations in the backward pass.

    Args:
        layer: The module to call.
        mode: "layer", or "selective" to save the outputs of `SAVED_OPERATIONS`.
        inputs: Inputs of the layer.
    """
    options: dict[str, Any] = {"use_reentrant": False}
    if mode == "selective":
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    out: Tensor = checkpoint(layer, *inputs, **options)
    return out


def _policy(_context: Any, operation: Any, *_inputs: Any, **_options: Any) -> CheckpointPolicy:
    saved = operation._schema.name in SAVED_OPERATIONS
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE
