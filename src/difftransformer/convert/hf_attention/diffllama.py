"""Reader of transformers' DiffLlama, DIFF V1; our own V1 is exported to this format.

Its layer calls attention twice, with the same queries and keys and one half of the values each. The
first half of the heads is positive, the second half is subtracted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from difftransformer.convert.hf_attention.differential import lambda_full
from difftransformer.convert.hf_attention.maps import CapturedAttention, NoiseMaps
from difftransformer.convert.hf_attention.softmax import Callback, capture_attention_calls
from difftransformer.models.differential import resolve_lambda_init


@contextmanager
def capture_diffllama(model: Any, callback: Callback) -> Iterator[None]:
    """Call ``callback`` with the inputs of each attention layer's maps while the model runs."""
    layers, first_values = model.base_model.layers, dict[int, Tensor]()

    def combine_calls(captured: CapturedAttention) -> None:
        layer, values = captured.layer, _halves(captured.values)[0]
        if layer not in first_values:
            first_values[layer] = values
            return
        values = torch.cat((first_values.pop(layer), values), dim=-1)
        (q1, q2), (k1, k2) = _halves(captured.queries), _halves(captured.keys)
        lambda_init = resolve_lambda_init("exponential", layer)
        noise = NoiseMaps(q2, k2, lambda_full(layers[layer].self_attn, lambda_init))
        callback(replace(captured, queries=q1, keys=k1, noise=noise, values=values))

    with capture_attention_calls(model, combine_calls):
        yield


def _halves(heads: Tensor) -> tuple[Tensor, Tensor]:
    first, second = heads.chunk(2, dim=1)
    return first, second
