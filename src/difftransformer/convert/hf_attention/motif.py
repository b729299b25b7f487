"""Motif: DIFF V1 in Motif-2.6B, Grouped Differential Attention in Motif-2-12.7B.

Facts by the readers of these weights in vLLM (github vllm-project/vllm at 130dd6e and
MotifTechnologies/vllm at 477e4d7, models/motif.py): the queries of a group are its signal heads and
one noise head behind them, as many groups as noise heads (``num_noise_heads``, else half of all);
keys and values alternate, a first and a second one for each pair; a value is a pair's two side by
side. lambda_init is one layer behind DIFF V1's, -0.01 in the first.

Shapes: B = sequences, T = positions, N = noise heads, r = signal heads to one, d = head_dim.
"""

from collections.abc import Callable, Iterator
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
from difftransformer.convert.hf_attention.maps import CapturedAttention, NoiseMap
from difftransformer.convert.hf_attention.softmax import raise_unreadable
from difftransformer.models.differential import resolve_lambda_init
from difftransformer.models.rotary import Rope, apply_rope

_CHILDREN = {"q_proj", "k_proj", "v_proj", "o_proj", "subln"}


@contextmanager
def motif_maps(model: Any, see: Callable[[CapturedAttention], None]) -> Iterator[None]:
    """Read its maps: a `registry.Reader`."""
    heads = int(model.config.num_attention_heads)
    noise_heads = int(getattr(model.config, "num_noise_heads", None) or heads // 2)

    def look(layer: int, module: Any, x: Tensor, given: Any) -> DifferentialLayer:
        width = module.q_proj.out_features // heads
        init = resolve_lambda_init("exponential", layer - 1)
        q, k = to_heads(module.q_proj(x), width), to_heads(module.k_proj(x), width)
        values = to_heads(module.v_proj(x), 2 * width)
        rope = _rope(model, module, values, given)
        q, k = apply_rope(q, rope), apply_rope(k, rope)
        groups = q.view(len(q), noise_heads, -1, *q.shape[2:])  # [B, N, r + 1, T, d]
        noise = NoiseMap(groups[:, :, -1], k[:, 1::2], lambda_full(module, init))
        signal, scale = groups[:, :, :-1].flatten(1, 2), width**-0.5
        maps = CapturedAttention(
            layer, signal, k[:, 0::2], scale, values, noise, projection=module.o_proj
        )
        return DifferentialLayer(maps, module.subln, 1 - init)

    with capture_differential(model, _CHILDREN, look, see):
        yield


def _rope(model: Any, module: Any, values: Tensor, given: Any) -> Rope:
    """Angles as the layer was given them, or as it makes them, in our layout."""
    tables = given.get("position_embeddings")
    if tables is None:
        if not hasattr(module, "rotary_emb"):
            raise_unreadable(model, "its layers get no positions")
        tables = module.rotary_emb(values, given.get("position_ids"))
    cos, sin = tables
    half = sin.shape[-1] // 2
    return cos, torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
