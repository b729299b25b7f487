from typing import Any, get_args

import pytest

from difftransformer.config.model import ModelConfig
from difftransformer.errors import ConfigError
from difftransformer.models.attention.registry import variants
from difftransformer.models.sizes import Measure, count_parameters, match_ffn, training_flops
from difftransformer.models.transformer import Transformer


def config(variant: str, **attention: Any) -> ModelConfig:
    return ModelConfig(
        vocab_size=64, d_model=32, num_layers=3, ffn_dim=96, max_positions=64,
        attention={"variant": variant, "head_dim": 8, "heads_per_kv_head": 2, **attention},
    )  # fmt: skip


@pytest.mark.parametrize("by", get_args(Measure))
@pytest.mark.parametrize("variant", variants())
def test_a_match_is_within_half_a_step_of_the_built_reference(variant: str, by: Measure) -> None:
    reference, ours = config("softmax"), config(variant)
    found = match_ffn(ours, reference, by, 8, seq_len=16)
    sized = ours.model_copy(update={"ffn_dim": found.ffn_dim})
    if by == "parameters":
        built = Transformer.build(sized, "eager", 0)
        assert found.size == sum(parameter.numel() for parameter in built.parameters())
        assert found.wanted == count_parameters(reference)
        step = 8 * 3 * 32 * 3  # three matrices of d_model columns in three layers
    else:
        assert (found.size, found.wanted) == (
            training_flops(sized, 16),
            training_flops(reference, 16),
        )
        step = 8 * 3 * 32 * 3 * 6
    assert found.ffn_dim % 8 == 0
    assert abs(found.size - found.wanted) <= step / 2
    assert found.residual == pytest.approx((found.size - found.wanted) / found.wanted)


def test_what_is_alike_keeps_its_size() -> None:
    found = match_ffn(config("softmax"), config("softmax"), "parameters", 8, 16)
    assert (found.ffn_dim, found.residual) == (96, 0.0)


def test_v2_and_one_and_a_half_times_the_heads_get_the_same_feed_forward() -> None:
    wide = match_ffn(
        config("softmax", num_heads_multiplier=1.5), config("softmax"), "parameters", 8, 16
    )
    v2 = match_ffn(config("diff_v2", lambda_form="none"), config("softmax"), "parameters", 8, 16)
    assert wide == v2
    assert wide.ffn_dim < 96


@pytest.mark.parametrize(
    ("by", "what"),
    [("parameters", "parameters"), ("training_flops", "FLOPs of training for each token")],
)
def test_no_feed_forward_left_is_one_line(by: Measure, what: str) -> None:
    small = config("softmax").model_copy(update={"ffn_dim": 8})
    with pytest.raises(ConfigError, match=f"without any feed-forward it has more {what} than"):
        match_ffn(config("diff_v2", num_heads=32), small, by, 8, 16)


def test_parameters_from_one_layer_are_those_of_the_model() -> None:
    tied = config("diff_v1").model_copy(update={"tie_embeddings": True})
    for sizes in (config("gated"), tied):
        whole = Transformer(sizes).parameters()
        assert count_parameters(sizes) == sum(parameter.numel() for parameter in whole)
