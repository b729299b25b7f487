"""Reader of Phi-4-mini-flash (SambaY): DIFF V1 without rotary positions in every other layer.

The layout follows the reader of these weights in vLLM (github vllm-project/vllm at 03356f8,
models/phi4flash.py). Queries, keys and values alternate, two per pair; a value is both of a pair,
concatenated. Layers after the middle project only queries and use keys and values of the last layer
that has its own. Layers of ``layer_types`` "sliding_attention" attend to the last
``sliding_window`` keys. State-space layers and gated memory units have no maps.

Shapes: B = sequences, T = positions, d = head_dim.
"""

from collections.abc import Iterator
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
    MaskFunction,
    NoiseMaps,
    causal,
    sliding_window,
)
from difftransformer.convert.hf_attention.softmax import Callback, raise_unreadable
from difftransformer.models.differential import resolve_lambda_init

_CHILDREN = {"Wqkv", "out_proj", "inner_cross_attn"}


@contextmanager
def capture_phi4flash(model: Any, callback: Callback) -> Iterator[None]:
    """Call ``callback`` with the inputs of each attention layer's maps while the model runs."""
    config = model.config
    num_heads, num_kv_heads = int(config.num_attention_heads), int(config.num_key_value_heads)
    head_dim = int(config.hidden_size) // num_heads
    shared_kv: list[Tensor] = []  # keys and values of the last layer that has its own

    def read_layer(layer: int, module: Any, x: Tensor, kwargs: Any) -> DifferentialLayer:
        projected = module.Wqkv(x)
        q = to_heads(projected[..., : num_heads * head_dim], head_dim)
        if projected.shape[-1] > num_heads * head_dim:
            k, v = projected[..., num_heads * head_dim :].chunk(2, dim=-1)
            shared_kv[:] = to_heads(k, head_dim), to_heads(v, 2 * head_dim)
        if not shared_kv or shared_kv[0].shape[2] != q.shape[2]:
            raise_unreadable(model, f"layer {layer} has no keys for all of its queries")
        k, v = shared_kv
        assert k.shape[1] == num_kv_heads
        inner, lambda_init = module.inner_cross_attn, resolve_lambda_init("exponential", layer)
        captured = CapturedAttention(
            layer=layer,
            queries=q[:, 0::2],
            keys=k[:, 0::2],
            scale=head_dim**-0.5,
            values=v,
            noise=NoiseMaps(q[:, 1::2], k[:, 1::2], lambda_full(inner, lambda_init)),
            mask=_mask_function(config, layer),
            projection=module.out_proj,
        )
        return DifferentialLayer(captured, inner.subln, 1 - lambda_init)

    with capture_differential(model, _CHILDREN, read_layer, callback):
        yield


def _mask_function(config: Any, layer: int) -> MaskFunction:
    """Return the mask of a layer; ``sliding_window`` is one number, or one per layer."""
    window = config.sliding_window
    if isinstance(window, list | tuple):
        window = window[layer]
    elif config.layer_types[layer] != "sliding_attention":
        window = None
    return causal if window is None else sliding_window(int(window))
