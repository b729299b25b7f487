"""Whatever hands queries, keys and values to transformers' AttentionInterface.

Llama, Qwen, Mistral, Gemma and most of its decoders do: after norms, rotary positions and whatever
else becomes of queries and keys, so that nothing of it is computed again here. The reader takes the
place of the attention function, and gathers the values by the maps that it hands on.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor

from difftransformer.convert.hf_attention.maps import CapturedAttention, KeyMask, causal_key_mask
from difftransformer.errors import CheckpointError

_NAME = "difftransformer_maps"
_FURTHER = ("s_aux", "position_bias")
"""What some attention functions are given beside the usual, and make other weights of."""


See = Callable[[CapturedAttention], None]
_JOINS = ("o_proj", "out_proj", "dense", "c_proj")
"""How its decoders name the matrix that joins heads."""
_watching: list[See] = []


@contextmanager
def softmax_maps(model: Any, see: See) -> Iterator[None]:
    """Read maps of one softmax a head: a `registry.Reader`."""
    read = set[int]()

    def once(maps: CapturedAttention) -> None:
        if maps.layer in read:
            raise_unreadable(model, f"layer {maps.layer} has more than one attention")
        read.add(maps.layer)
        see(maps)

    with capture_attention_calls(model, once):
        yield


@contextmanager
def capture_attention_calls(model: Any, see: See) -> Iterator[None]:
    """Let ``see`` have the maps of each call of an attention function of transformers.

    Raises:
        CheckpointError: It has none of that kind, or has more in them than a softmax.
    """
    before, calls = model.config._attn_implementation, 0

    def count(maps: CapturedAttention) -> None:
        nonlocal calls
        calls += 1
        see(maps)

    _register()
    model.set_attn_implementation(_NAME)
    _watching.append(count)
    try:
        if model.config.get_text_config()._attn_implementation != _NAME:
            raise_unreadable(model, "its attention is its own")
        yield
        if not calls:
            raise_unreadable(model, "no layer asks for attention")
    finally:
        _watching.remove(count)
        model.set_attn_implementation(before)


def raise_unreadable(model: Any, why: str) -> NoReturn:
    """Refuse a model, or a module of it.

    Raises:
        CheckpointError: Always.
    """
    raise CheckpointError(
        f"{type(model).__name__}: its attention maps cannot be read ({why}): take a model whose "
        "attention goes through transformers, or write a reader in convert/hf_attention"
    )


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **further: Any,
) -> tuple[Tensor, None]:
    """Stand in for an attention function of transformers: [B, H, T, d] -> [B, T, H, e]."""
    if given := [name for name in _FURTHER if further.get(name) is not None]:
        raise_unreadable(module, f"its weights depend on {given[0]}")
    if query.shape[2] != key.shape[2]:
        raise_unreadable(module, f"{query.shape[2]} queries meet {key.shape[2]} keys")
    maps = CapturedAttention(
        layer=int(module.layer_idx),
        queries=query,
        keys=key,
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        softcap=softcap,
        seen=_by_mask(module, attention_mask),
        values=value,
        projection=next((one for name, one in module.named_children() if name in _JOINS), None),
    )
    _watching[-1](maps)
    return maps.attend(), None


def _by_mask(module: Any, mask: Tensor | None) -> KeyMask:
    """Which keys count by a mask that transformers made, the same for all sequences and heads."""
    if mask is None:
        return causal_key_mask
    if mask.dtype != torch.bool or mask.shape[1] != 1:
        raise_unreadable(module, "its mask is no choice of keys")
    allowed = mask[0, 0]
    return lambda start, stop, device: allowed[start:stop, :stop].to(device)


def _register() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
