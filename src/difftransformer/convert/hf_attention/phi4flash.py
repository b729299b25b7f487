"""Phi-4-mini-flash (SambaY): DIFF V1 without rotary positions in every other layer.

Facts by the reader of these weights in vLLM (github vllm-project/vllm at 03356f8,
models/phi4flash.py): queries, keys and values alternate, a first and a second one for each pair; a
value is a pair's two side by side. Behind the middle the layers project queries alone and take keys
and values of the last layer that has its own. Layers of ``layer_types`` "sliding_attention" see the
last ``sliding_window`` keys. State spaces and gated memory have no maps.

Shapes: B = sequences, T = positions, d = head_dim.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from difftransformer.convert.hf_attention.differential import (
    DifferentialLayer,
    capture_differential,
    lambda_full,
    to_heads,
)
from difftransformer.convert.hf_attention.maps import (
    CapturedAttention,
    KeyMask,
    NoiseMap,
    causal_key_mask,
    sliding_window_mask,
)
from difftransformer.convert.hf_attention.softmax import raise_unreadable
from difftransformer.models.differential import resolve_lambda_init

_CHILDREN = {"Wqkv", "out_proj", "inner_cross_attn"}


@contextmanager
def phi4flash_maps(model: Any, see: Callable[[CapturedAttention], None]) -> Iterator[None]:
    """Read its maps: a `registry.Reader`."""
    config = model.config
    heads, key_heads = int(config.num_attention_heads), int(config.num_key_value_heads)
    width = int(config.hidden_size) // heads
    shared: list[Tensor] = []  # keys and values of the last layer that has its own

    def look(layer: int, module: Any, x: Tensor, given: Any) -> DifferentialLayer:
        projected = module.Wqkv(x)
        q = to_heads(projected[..., : heads * width], width)
        if projected.shape[-1] > heads * width:
            k, v = projected[..., heads * width :].chunk(2, dim=-1)
            shared[:] = to_heads(k, width), to_heads(v, 2 * width)
        if not shared or shared[0].shape[2] != q.shape[2]:
            raise_unreadable(model, f"layer {layer} has no keys for all of its queries")
        k, values = shared
        assert k.shape[1] == key_heads
        inner, init = module.inner_cross_attn, resolve_lambda_init("exponential", layer)
        noise = NoiseMap(q[:, 1::2], k[:, 1::2], lambda_full(inner, init))
        seen, out = _seen(config, layer), module.out_proj
        signal, scale = q[:, 0::2], width**-0.5
        maps = CapturedAttention(
            layer, signal, k[:, 0::2], scale, values, noise, seen=seen, projection=out
        )
        return DifferentialLayer(maps, inner.subln, 1 - init)

    with capture_differential(model, _CHILDREN, look, see):
        yield


def _seen(config: Any, layer: int) -> KeyMask:
    """Which keys count in a layer; its window is one for all layers that slide, or one for each."""
    window = config.sliding_window
    if isinstance(window, list | tuple):
        window = window[layer]
    elif config.layer_types[layer] != "sliding_attention":
        window = None
    return causal_key_mask if window is None else sliding_window_mask(int(window))
