from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from difftransformer.errors import ConfigError
from difftransformer.models import normalization
from difftransformer.models.attention.registry import variants
from difftransformer.models.config import ModelConfig
from difftransformer.models.linear import MATMUL
from difftransformer.models.sizes import (
    Measure,
    count_parameters,
    forward_flops,
    kv_cache_numel_per_token,
    match_ffn,
    training_flops,
)
from difftransformer.models.transformer import Transformer

BATCH, LENGTH = 2, 12


def config(variant: str, **attention: Any) -> ModelConfig:
    heads = {"head_dim": 4, "num_heads": 4, "num_kv_heads": 2}
    return ModelConfig(
        vocab_size=40, d_model=16, num_layers=2, ffn_dim=24, max_positions=LENGTH,
        attention={"variant": variant, **heads, **attention},
    )  # fmt: skip


OWN: list[dict[str, Any]] = [
    *({"variant": name} for name in variants()),
    {"variant": "gated", "gate": "elementwise"},
    {"variant": "diff_v2", "pairing": "across_groups"},
    {"variant": "diff_v2", "lambda_form": "none"},
    {"variant": "diff_v1", "lambda_fixed": 0.0},
    {"variant": "dex_s", "share": 0.5},
    {"variant": "dex_s", "difference": "head"},
    {"variant": "shared_diff", "rank": 2},
    {"variant": "softmax", "gain": 4.0},
    {"variant": "softmax", "num_heads_multiplier": 1.5},
]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("own", OWN, ids=lambda own: "-".join(map(str, own.values())))
def test_formulas_are_what_torch_counts(
    own: dict[str, Any], tied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MATMUL, "torch")  # whose products torch counts,
    monkeypatch.setattr(
        normalization, "use_custom_backward", lambda x: False
    )  # and does our sums by products
    sizes = replace(config(**own), tie_embeddings=tied)
    model = Transformer.build(sizes, "eager", 0)
    tokens = torch.randint(40, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter:
        logits = model(tokens)
        forward = counter.get_total_flops()
        logits.sum().backward()
    assert forward == BATCH * LENGTH * forward_flops(sizes, LENGTH)
    assert counter.get_total_flops() == BATCH * LENGTH * training_flops(sizes, LENGTH)


def test_a_longer_context_costs_its_maps() -> None:
    """Two layers of four heads, a logit and a value of 4 each, two operations a multiply-add."""
    sizes = config("softmax")
    assert forward_flops(sizes, 20) - forward_flops(sizes, 12) == 2 * 2 * 4 * (4 + 4) * 8


LAYERS, HEAD_DIM = 3, 8


def cached_config(**attention: Any) -> ModelConfig:
    return ModelConfig(
        vocab_size=16, d_model=64, num_layers=LAYERS, ffn_dim=32, max_positions=16,
        attention={"head_dim": HEAD_DIM} | attention,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("attention", "heads"),
    [
        ({"variant": "softmax"}, 8 + 8),  # keys and values
        ({"variant": "softmax", "num_kv_heads": 2}, 2 + 2),
        ({"variant": "diff_v1"}, 8 + 8),  # two keys and a value of twice the width, of 4 heads
        ({"variant": "diff_v1", "num_kv_heads": 2}, 4 + 4),
        ({"variant": "diff_v2", "num_kv_heads": 2}, 2 + 2),  # as many as the Transformer's
    ],
)
def test_the_cache_of_known_variants(attention: dict[str, Any], heads: int) -> None:
    assert kv_cache_numel_per_token(cached_config(**attention)) == LAYERS * heads * HEAD_DIM


@pytest.mark.parametrize("variant", variants())
def test_the_cache_of_every_variant_can_be_counted(variant: str) -> None:
    options = {"variant": variant} | ({"gate": "headwise"} if variant == "gated" else {})
    assert kv_cache_numel_per_token(cached_config(**options)) > 0


def matched_config(variant: str, **attention: Any) -> ModelConfig:
    return ModelConfig(
        vocab_size=64, d_model=32, num_layers=3, ffn_dim=96, max_positions=64,
        attention={"variant": variant, "head_dim": 8, "heads_per_kv_head": 2, **attention},
    )  # fmt: skip


@pytest.mark.parametrize("by", get_args(Measure))
@pytest.mark.parametrize("variant", variants())
def test_a_match_is_within_half_a_step_of_the_built_reference(variant: str, by: Measure) -> None:
    reference, ours = matched_config("softmax"), matched_config(variant)
    actual = match_ffn(ours, reference, by, seq_len=16)
    sized = replace(ours, ffn_dim=actual.ffn_dim)
    if by == "parameters":
        built = Transformer.build(sized, "eager", 0)
        assert actual.size == sum(parameter.numel() for parameter in built.parameters())
        assert actual.target == count_parameters(reference)
        step = 8 * 3 * 32 * 3  # three matrices of d_model columns in three layers
    else:
        assert (actual.size, actual.target) == (
            training_flops(sized, 16),
            training_flops(reference, 16),
        )
        step = 8 * 3 * 32 * 3 * 6
    assert actual.ffn_dim % 8 == 0
    assert abs(actual.size - actual.target) <= step / 2
    assert actual.relative_error == pytest.approx((actual.size - actual.target) / actual.target)


def test_v2_and_one_and_a_half_times_the_heads_get_the_same_feed_forward() -> None:
    wide = match_ffn(
        matched_config("softmax", num_heads_multiplier=1.5),
        matched_config("softmax"),
        "parameters",
        16,
    )
    v2 = match_ffn(
        matched_config("diff_v2", lambda_form="none"), matched_config("softmax"), "parameters", 16
    )
    assert wide == v2
    assert wide.ffn_dim < 96


@pytest.mark.parametrize(
    ("by", "what"), [("parameters", "parameters"), ("training_flops", "training FLOPs per token")]
)
def test_no_feed_forward_left_is_one_line(by: Measure, what: str) -> None:
    small = replace(matched_config("softmax"), ffn_dim=8)
    with pytest.raises(ConfigError, match=f"{what} even without a feed-forward"):
        match_ffn(matched_config("diff_v2", num_heads=32), small, by, 16)
