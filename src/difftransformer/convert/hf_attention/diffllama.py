"""DIFF V1 as transformers has it, DiffLlama: the format that our own V1 is exported to.

Its layer asks for attention twice, with the same queries and keys and one half of the values each.
The first half of the heads keeps its maps, the second half is subtracted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from difftransformer.convert.hf_attention.differential import lambda_full
from difftransformer.convert.hf_attention.maps import CapturedAttention, NoiseMap
from difftransformer.convert.hf_attention.softmax import capture_attention_calls
from difftransformer.models.differential import resolve_lambda_init


@contextmanager
def diffllama_maps(model: Any, see: Callable[[CapturedAttention], None]) -> Iterator[None]:
    """Read its maps: a `registry.Reader`."""
    layers, begun = model.base_model.layers, dict[int, Tensor]()

    def look(maps: CapturedAttention) -> None:
        half = _halves(maps.values)[0]
        if maps.layer not in begun:
            begun[maps.layer] = half
            return
        values = torch.cat((begun.pop(maps.layer), half), dim=-1)
        (first, second), (keys, others) = (_halves(one) for one in (maps.queries, maps.keys))
        init = resolve_lambda_init("exponential", maps.layer)
        noise = NoiseMap(second, others, lambda_full(layers[maps.layer].self_attn, init))
        see(replace(maps, queries=first, keys=keys, noise=noise, values=values))

    with capture_attention_calls(model, look):
        yield


def _halves(heads: Tensor) -> tuple[Tensor, Tensor]:
    first, second = heads.chunk(2, dim=1)
    return first, second
