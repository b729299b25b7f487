"""Parameters of a variant: how many, and of those that are not matrices where they start."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracles import exact_maps, exact_output, exact_weights, shared_pairs
from small_layers import D_MODEL, build, configurations, inputs

from difftransformer.models.attention.diff_v1 import DifferentialAttention
from difftransformer.models.attention.maps import attention_maps
from difftransformer.models.attention.registry import configure, variants
from difftransformer.models.attention.shared_diff import SharedDiffAttention
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer

HEADS = {"head_dim": 4, "num_heads": 4, "num_kv_heads": 2}
COUNTS: dict[str, Callable[[Any, int, int, int], int]] = {
    # Of a config, H, G and d: columns of d_model first, then vectors.
    "softmax": lambda c, H, G, d: (
        2 * (H + G) * d * D_MODEL + d * c.norm + d * (c.gain is not None)
    ),
    "softmax_off_by_one": lambda _, H, G, d: 2 * (H + G) * d * D_MODEL,
    "gpt_oss_sink": lambda _, H, G, d: 2 * (H + G) * d * D_MODEL + H,
    "gated": lambda c, H, G, d: (
        (2 * (H + G) * d + H * (1 if c.gate == "headwise" else d)) * D_MODEL
    ),
    "diff_v2": lambda c, H, G, d: (
        (3 * H * d + 2 * G * d + H * (c.lambda_form != "none")) * D_MODEL
    ),
    "diff_v1": lambda c, H, G, d: (
        4 * (H + G) * d * D_MODEL + 4 * d * (c.lambda_fixed is None) + 2 * d * c.norm
    ),
    "dint": lambda c, H, G, d: (
        4 * (H + G) * d * D_MODEL + 4 * d * (c.lambda_fixed is None) + 2 * d * c.norm
    ),
    "grouped_diff": lambda c, H, G, d: (
        (3 * H + 5 * G) * d * D_MODEL + 4 * d * (c.lambda_fixed is None) + 2 * d * c.norm
    ),
    "dex_s": lambda c, H, G, d: (
        2 * (H + G) * d * D_MODEL + d**2 * (c.selected if c.difference == "head" else 1) + 1
    ),
    "tda": lambda c, H, G, d: (
        4 * (H + G) * d * D_MODEL + H * (c.lambda_fixed is None) + 2 * d * c.norm
    ),
    "shared_diff": lambda c, H, G, d: (
        (3 * (H + G) * d + 4 * c.rank) * D_MODEL + 2 * c.rank * (H + G) * d
        + 4 * d * (c.lambda_fixed is None) + 2 * d * c.norm
    ),
}  # fmt: skip


def test_parameters_are_as_many_as_the_formula_says() -> None:
    assert set(COUNTS) <= set(variants())
    for name, options in configurations():
        if count := COUNTS.get(options["variant"]):
            config = configure(options, D_MODEL)
            sizes = config.output_heads, config.kv_heads, config.head_dim
            actual = sum(parameter.numel() for parameter in build(options, "eager").parameters())
            assert actual == count(config, *sizes), name


def test_lambdas_of_tda_start_as_configured_and_are_clamped_to_zero_to_one() -> None:
    options = {"variant": "tda", "beta": 0.3, "norm_eps": 0.01, "lambda_init": 0.3, **HEADS}
    layer = build(options, "eager")
    assert torch.equal(layer.lambdas, torch.full((4,), 0.3))
    x, rope = inputs(layer, 9)
    outputs = []
    for lambdas in ([-0.7, 0.0, 1.0, 1.6], [0.0, 0.0, 1.0, 1.0]):
        with torch.no_grad():
            layer.lambdas.copy_(torch.tensor(lambdas))
        outputs.append(layer(x, rope))
        exact = exact_output(options, exact_weights(layer), x.double(), layer.layer_index)
        torch.testing.assert_close(outputs[-1].double(), exact, rtol=1e-4, atol=1e-4)
    assert torch.equal(*outputs)


def test_diff_v1_with_lambda_fixed_at_0_is_its_first_maps_with_its_own_factor() -> None:
    options = {"variant": "diff_v1", "lambda_fixed": 0.0, **HEADS}
    layer = build(options, "sdpa")
    assert isinstance(layer, DifferentialAttention)
    assert layer.head_scale == pytest.approx(0.2 + 0.6 * math.exp(-0.3))  # that of layer 1
    x, rope = inputs(layer, 9)
    maps = exact_maps(options, dict(layer.named_parameters()), x)
    first = torch.stack([first for first, _ in maps], dim=1)
    torch.testing.assert_close(attention_maps(layer, x, rope), first)
    layer(x, rope).square().sum().backward()
    queries = layer.qkv_proj.weight.grad[: 4 * 2 * 4].view(4, 2, -1)
    assert queries[:, 0].abs().min(dim=-1).values.max() > 0
    assert not queries[:, 1].any()


@pytest.mark.parametrize("lambda_init", ["exponential", 0.35])
def test_a_lambda_fixed_at_its_start_is_that_number(lambda_init: object) -> None:
    options = {"variant": "diff_v1", "lambda_init": lambda_init, **HEADS}
    number = 0.8 - 0.6 * math.exp(-0.3) if lambda_init == "exponential" else 0.35  # layer 1
    fixed, constant = (
        build(options | {"lambda_fixed": value}, "sdpa") for value in ("init", number)
    )
    assert not any("lambda" in name for name, _ in fixed.named_parameters())
    x, rope = inputs(fixed, 9)
    assert torch.equal(fixed(x, rope), constant(x, rope))
    exact = exact_output(options | {"lambda_fixed": "init"}, exact_weights(fixed), x.double(), 1)
    torch.testing.assert_close(fixed(x, rope).double(), exact, rtol=1e-4, atol=1e-4)


def test_a_gain_starts_at_its_configured_value() -> None:
    plain, gained = (
        build({"variant": "softmax", **HEADS, **own}, "sdpa") for own in ({}, {"gain": 3.0})
    )
    x, rope = inputs(plain, 9)
    torch.testing.assert_close(gained(x, rope), 3 * plain(x, rope))


def test_lambda_vectors_of_diff_v1_start_with_a_tenth() -> None:
    layer = build({"variant": "diff_v1", **HEADS | {"head_dim": 128}}, "eager")
    vectors = [layer.lambda_q1, layer.lambda_k1, layer.lambda_q2, layer.lambda_k2]
    assert abs(float(torch.cat(vectors).detach().std()) - 0.1) < 0.02
    assert len({float(vector.detach()[0]) for vector in vectors}) == 4


@pytest.mark.parametrize(
    ("initializer", "rank", "correlation"),
    [("fan_in", 8, 0.5), ("fan_in", 64, 0.5), ("normal", 64, 0.975)],
)
def test_maps_of_shared_diff_start_with_the_configured_correlation(
    initializer: Any, rank: int, correlation: float
) -> None:
    config = ModelConfig(
        vocab_size=8,
        d_model=256,
        num_layers=1,
        ffn_dim=8,
        attention={"variant": "shared_diff", "head_dim": 64, "num_heads": 2, "rank": rank},
        max_positions=8,
        initializer=initializer,
    )
    (layer,) = (
        module
        for module in Transformer.build(config, "eager", 0).modules()
        if isinstance(module, SharedDiffAttention)
    )
    weights = {name: tensor.detach() for name, tensor in layer.named_parameters()}
    options = {"head_dim": 64, "num_heads": 2, "rank": rank}
    x = torch.randn(1, 64, 256, generator=torch.Generator().manual_seed(1))
    pairs = list(shared_pairs(options, weights, x))
    for first, second in (("q1", "q2"), ("k1", "k2")):
        both = [
            torch.cat([getattr(pair, name).flatten() for pair in pairs]) for name in (first, second)
        ]
        assert abs(float(torch.corrcoef(torch.stack(both))[0, 1]) - correlation) < 0.03
