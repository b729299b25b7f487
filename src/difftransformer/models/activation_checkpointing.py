"""Computing a layer again in the backward pass, all of it, or all but what is dear to compute.

`torch.utils.checkpoint` keeps a layer's input alone. Selectively (its ``context_fn``) the products
with the layer's matrices and what attention gives are kept, too, by far the most work; norms,
gates, rotations and sums are computed again. The maps of attention are never kept: they are the
larger part of its memory where a kernel writes them out.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

KEPT = frozenset(
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
"""Operations whose results a selective recomputation keeps."""


def activation_checkpoint(layer: nn.Module, mode: str, *inputs: Any) -> Tensor:
    """Return ``layer`` of ``inputs``; the backward pass computes it again.

    Args:
        layer: A layer.
        mode: "layer", or "selective" to keep what the operations `KEPT` give.
        inputs: Of the layer.
    """
    options: dict[str, Any] = {"use_reentrant": False}
    if mode == "selective":
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    out: Tensor = checkpoint(layer, *inputs, **options)
    return out


def _policy(_context: Any, operation: Any, *_inputs: Any, **_options: Any) -> CheckpointPolicy:
    kept = operation._schema.name in KEPT
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
