"""Capture of the attention of models that use transformers' AttentionInterface.

Llama, Qwen, Mistral, Gemma and most decoders of transformers do. A registered attention function
gets queries and keys after norms and rotary positions, and computes the output from the same
inputs that it passes to the callback.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor

from difftransformer.convert.hf_attention.maps import CapturedAttention, MaskFunction, causal
from difftransformer.errors import CheckpointError

_NAME = "difftransformer_maps"
"""Name of our attention implementation in transformers."""
_UNSUPPORTED = ("s_aux", "position_bias")
"""Arguments of an attention function that change its weights."""
_OUTPUT_PROJECTIONS = ("o_proj", "out_proj", "dense", "c_proj")
"""Names of the output projection in transformers' decoders."""

Callback = Callable[[CapturedAttention], None]
_callbacks: list[Callback] = []


@contextmanager
def capture_softmax(model: Any, callback: Callback) -> Iterator[None]:
    """Call ``callback`` with the inputs of each attention layer's maps while the model runs.

    It is the `registry.Reader` of models with one softmax map per head.
    """
    layers = set[int]()

    def once(captured: CapturedAttention) -> None:
        if captured.layer in layers:
            raise_unreadable(model, f"layer {captured.layer} has more than one attention")
        layers.add(captured.layer)
        callback(captured)

    with capture_attention_calls(model, once):
        yield


@contextmanager
def capture_attention_calls(model: Any, callback: Callback) -> Iterator[None]:
    """Call ``callback`` with each call of the model's attention function within the context.

    Raises:
        CheckpointError: The model does not use the AttentionInterface, or its attention is more
            than a softmax.
    """
    implementation, calls = model.config._attn_implementation, 0

    def count(captured: CapturedAttention) -> None:
        nonlocal calls
        calls += 1
        callback(captured)

    _register()
    model.set_attn_implementation(_NAME)
    _callbacks.append(count)
    try:
        if model.config.get_text_config()._attn_implementation != _NAME:
            raise_unreadable(model, "it has its own attention implementation")
        yield
        if not calls:
            raise_unreadable(model, "no layer calls the attention function")
    finally:
        _callbacks.remove(count)
        model.set_attn_implementation(implementation)


def raise_unreadable(model: Any, reason: str) -> NoReturn:
    """Raise a `CheckpointError` for a model or module whose attention cannot be captured.

    Raises:
        CheckpointError: Always.
    """
    raise CheckpointError(
        f"{type(model).__name__}: its attention maps cannot be read ({reason}): choose a model "
        "that uses transformers' AttentionInterface, or write a reader in convert/hf_attention"
    )


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Return the output [B, T, H, e] as an attention function of transformers, and capture it."""
    if unsupported := [name for name in _UNSUPPORTED if options.get(name) is not None]:
        raise_unreadable(module, f"its weights depend on {unsupported[0]}")
    if query.shape[2] != key.shape[2]:
        raise_unreadable(module, f"it has {query.shape[2]} queries and {key.shape[2]} keys")
    children = module.named_children()
    captured = CapturedAttention(
        layer=int(module.layer_idx),
        queries=query,
        keys=key,
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        softcap=softcap,
        mask=_mask_function(module, attention_mask),
        values=value,
        projection=next((child for name, child in children if name in _OUTPUT_PROJECTIONS), None),
    )
    _callbacks[-1](captured)
    return captured.attend(), None


def _mask_function(module: Any, mask: Tensor | None) -> MaskFunction:
    """Return the mask of a layer; transformers' mask is the same for all sequences and heads."""
    if mask is None:
        return causal
    if mask.dtype != torch.bool or mask.shape[1] != 1:
        raise_unreadable(module, "its mask is not a bool mask shared by all heads")
    allowed = mask[0, 0]
    return lambda start, stop, device: allowed[start:stop, :stop].to(device)


def _register() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
