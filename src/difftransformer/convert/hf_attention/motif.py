"""Reader of Motif: DIFF V1 in Motif-2.6B, Grouped Differential Attention in Motif-2-12.7B.

The layout follows the readers of these weights in vLLM (github vllm-project/vllm at 130dd6e and
MotifTechnologies/vllm at 477e4d7, models/motif.py). Queries come in groups of signal heads followed
by one noise head, as many groups as noise heads (``num_noise_heads``, else half of all heads). Keys
and values alternate, two per pair; a value is both of a pair, concatenated. lambda_init is one
layer behind DIFF V1's, -0.01 in the first layer.

Shapes: B = sequences, T = positions, N = noise heads, r = signal heads per noise head,
d = head_dim.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from difftransformer.convert.hf_attention.differential import (
    DifferentialLayer,
    capture_differential,
    lambda_full,
    to_heads,
)
from difftransformer.convert.hf_attention.maps import CapturedAttention, NoiseMaps
from difftransformer.convert.hf_attention.softmax import Callback, raise_unreadable
from difftransformer.models.differential import resolve_lambda_init
from difftransformer.models.rotary import Rope, apply_rope

_CHILDREN = {"q_proj", "k_proj", "v_proj", "o_proj", "subln"}


@contextmanager
def capture_motif(model: Any, callback: Callback) -> Iterator[None]:
    """Call ``callback`` with the inputs of each attention layer's maps while the model runs."""
    num_heads = int(model.config.num_attention_heads)
    noise_heads = int(getattr(model.config, "num_noise_heads", None) or num_heads // 2)

    def read_layer(layer: int, module: Any, x: Tensor, kwargs: Any) -> DifferentialLayer:
        head_dim = module.q_proj.out_features // num_heads
        lambda_init = resolve_lambda_init("exponential", layer - 1)
        q, k = to_heads(module.q_proj(x), head_dim), to_heads(module.k_proj(x), head_dim)
        v = to_heads(module.v_proj(x), 2 * head_dim)
        rope = _rope(model, module, v, kwargs)
        q, k = apply_rope(q, rope), apply_rope(k, rope)
        groups = q.view(len(q), noise_heads, -1, *q.shape[2:])  # [B, N, r + 1, T, d]
        noise = NoiseMaps(groups[:, :, -1], k[:, 1::2], lambda_full(module, lambda_init))
        captured = CapturedAttention(
            layer=layer,
            queries=groups[:, :, :-1].flatten(1, 2),
            keys=k[:, 0::2],
            scale=head_dim**-0.5,
            values=v,
            noise=noise,
            projection=module.o_proj,
        )
        return DifferentialLayer(captured, module.subln, 1 - lambda_init)

    with capture_differential(model, _CHILDREN, read_layer, callback):
        yield


def _rope(model: Any, module: Any, values: Tensor, kwargs: Any) -> Rope:
    """Return the layer's cos and sin, passed to it or computed by it, in our layout."""
    tables = kwargs.get("position_embeddings")
    if tables is None:
        if not hasattr(module, "rotary_emb"):
            raise_unreadable(model, "its layers get no positions")
        tables = module.rotary_emb(values, kwargs.get("position_ids"))
    cos, sin = tables
    half = sin.shape[-1] // 2
    return cos, torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
