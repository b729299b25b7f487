"""Rows of maps by blocks, and the two maps of a head, of every variant of the registry."""

from typing import Any

import pytest
import torch
from oracles import exact_maps, exact_weights
from small_layers import build, inputs

from difftransformer.models.attention.base import Attention
from difftransformer.models.attention.maps import attention_maps, iter_blocks


@torch.no_grad()
@pytest.mark.parametrize("block", [1, 4, 9, 20])
def test_blocks_of_rows_make_the_whole_maps(options: dict[str, Any], block: int) -> None:
    layer = build(options, "eager")
    x, rope = inputs(layer, 13)
    maps = attention_maps(layer, x, rope)
    reached = 0
    for rows in iter_blocks(layer, x, rope, block):
        stop = min(reached + block, 13)
        assert rows.start == reached
        torch.testing.assert_close(rows.weights, maps[:, :, reached:stop, :stop])
        reached = stop
    assert reached == 13


@torch.no_grad()
def test_the_weights_are_the_first_map_less_lambda_times_the_second(
    options: dict[str, Any],
) -> None:
    layer = build(options, "eager")
    x, rope = inputs(layer, 13)
    (rows,) = iter_blocks(layer, x, rope, 13)
    if rows.component_maps is None:
        _require_no_two_maps(layer, x)
        return
    first, second = rows.component_maps
    lam = layer.lambda_per_head(x)
    follows = lam is not None and lam.shape[:2] == x.shape[:2]
    assert layer.lambda_depends_on_input == follows
    lam = torch.ones(1, 1, 1) if lam is None else lam
    made = first - lam.mT.unsqueeze(-1) * second
    if options["variant"] == "dint":
        counts = torch.arange(1, 14)[:, None]
        made += lam.mT.unsqueeze(-1) * first.cumsum(2) / counts
    torch.testing.assert_close(rows.weights, made)


def _require_no_two_maps(layer: Attention, x: torch.Tensor) -> None:
    name = type(layer).__name__
    maps = layer.num_q_heads / layer.num_heads
    assert maps != 2, (
        f"{name}.component_maps returns None for heads with two maps: return the positive and the "
        "subtracted map"
    )
    subtracts = maps > 1
    assert subtracts or layer.lambda_per_head(x) is None, (
        f"{name}.lambda_per_head gives the factor of a map that is subtracted, and heads have one"
    )


@pytest.mark.parametrize("maps", [1, 2, 3])
def test_heads_of_two_maps_alone_need_a_pair(maps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = build({"variant": "softmax", "head_dim": 6}, "eager")
    monkeypatch.setattr(layer, "num_q_heads", maps * layer.num_heads)
    x, _ = inputs(layer, 3)
    if maps == 2:
        message = r"SoftmaxAttention\.component_maps returns None for heads with two maps"
        with pytest.raises(AssertionError, match=message):
            _require_no_two_maps(layer, x)
    else:
        _require_no_two_maps(layer, x)


@torch.no_grad()
def test_the_two_maps_are_those_of_the_queries_of_a_head(options: dict[str, Any]) -> None:
    layer = build(options, "eager").double()
    x, rope = inputs(layer, 9)
    x, rope = x.double(), (rope[0].double(), rope[1].double())
    (rows,) = iter_blocks(layer, x, rope, 9)
    if rows.component_maps is None or options["variant"] == "tda":  # whose maps are no softmax
        return
    for h, maps in enumerate(exact_maps(options, exact_weights(layer), x)):
        for actual, exact in zip(rows.component_maps, maps, strict=True):
            torch.testing.assert_close(actual[:, h], exact, rtol=1e-6, atol=1e-8)
