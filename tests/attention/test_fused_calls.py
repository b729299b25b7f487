"""One call of PyTorch's fused attention computes a layer, and no map is written out."""

from typing import Any

import pytest
import torch
from small_layers import D_MODEL, build, inputs
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

T = 37
"""No other size of these layers is so long."""
HEADS = {"head_dim": 4, "num_heads": 4, "num_kv_heads": 2}
FUSED = [
    {"variant": "diff_v2"},
    {"variant": "diff_v2", "pairing": "across_groups"},
    {"variant": "diff_v2", "lambda_form": "none"},
    {"variant": "diff_v2", "lambda_form": "raw"},
    {"variant": "gpt_oss_sink"},
    {"variant": "softmax_off_by_one"},
    {"variant": "gated"},
    {"variant": "softmax"},
]


class Watch(TorchDispatchMode):
    """Names of fused operations, and of those that return something T x T."""

    def __init__(self) -> None:
        super().__init__()
        self.fused: list[str] = []
        self.maps: list[str] = []

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = operation(*args, **(kwargs or {}))
        if "scaled_dot_product" in str(operation):
            self.fused.append(str(operation))
        for actual in tree_leaves(out):
            if isinstance(actual, torch.Tensor) and actual.shape[-2:] == (T, T):
                self.maps.append(str(operation))
        return out


@pytest.mark.parametrize("own", FUSED, ids=lambda own: "-".join(own.values()))
def test_forward_and_backward_are_one_fused_call_each(own: dict[str, Any]) -> None:
    layer = build({**own, **HEADS}, "sdpa")
    x, rope = inputs(layer, T)
    assert x.shape == (2, T, D_MODEL)
    with Watch() as forward:
        out = layer(x.requires_grad_(), rope)
    with Watch() as backward:
        out.sum().backward()
    assert (len(forward.fused), len(backward.fused)) == (1, 1)
    assert forward.maps == backward.maps == []


def test_the_watch_sees_maps_that_are_written_out() -> None:
    layer = build({"variant": "diff_v2", **HEADS}, "eager")
    with Watch() as watch:
        layer(*inputs(layer, T))
    assert watch.maps and not watch.fused
