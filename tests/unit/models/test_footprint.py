"""The cache of a variant, counted against its formula."""

from typing import Any

import pytest

from difftransformer.config.model import ModelConfig
from difftransformer.models.attention.registry import variants
from difftransformer.models.sizes import cached_numbers

LAYERS, HEAD_DIM = 3, 8


def config(**attention: Any) -> ModelConfig:
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
def test_known_variants(attention: dict[str, Any], heads: int) -> None:
    assert cached_numbers(config(**attention)) == LAYERS * heads * HEAD_DIM


@pytest.mark.parametrize("variant", variants())
def test_every_variant_can_be_counted(variant: str) -> None:
    options = {"variant": variant} | ({"gate": "headwise"} if variant == "gated" else {})
    assert cached_numbers(config(**options)) > 0
