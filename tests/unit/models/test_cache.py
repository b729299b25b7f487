"""A cache of which a prefix is kept, and rows of attention read from it, layer by layer."""

from typing import Any

import pytest
import torch

from difftransformer.models.attention.maps import attention_maps
from difftransformer.models.cache import PrefixCache
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import DecoderLayer, Transformer

VARIANTS = {
    "softmax": {"variant": "softmax", "head_dim": 4},
    "diff_v1": {"variant": "diff_v1", "head_dim": 4},
    "diff_v1 with shared keys": {
        "variant": "diff_v1", "head_dim": 4, "num_heads": 2, "num_kv_heads": 1,
    },
}  # fmt: skip


@pytest.fixture(params=VARIANTS)
def model(request: pytest.FixtureRequest) -> Transformer:
    return Transformer.build(config(VARIANTS[request.param]), "sdpa", seed=1).eval()


def config(attention: dict[str, Any]) -> ModelConfig:
    return ModelConfig(
        vocab_size=17, d_model=16, num_layers=3, ffn_dim=24, attention=attention, max_positions=32
    )


@torch.no_grad()
def test_continuing_from_a_truncated_cache_equals_a_fresh_start(model: Transformer) -> None:
    first = torch.randint(17, (1, 20), generator=torch.Generator().manual_seed(0))
    second = first.clone()
    second[:, 9:] = (second[:, 9:] + 1) % 17
    cache = PrefixCache(20)
    assert cache.get_seq_length() == 0
    model.hidden_states(first, cache=cache)
    cache.truncate(9)
    actual = model.hidden_states(second[:, 9:], cache=cache)
    assert cache.get_seq_length() == 20
    expected = model.hidden_states(second)[:, 9:]
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_last_token_attention_has_no_autograd_graph(model: Transformer) -> None:
    tokens = torch.zeros(1, 3, dtype=torch.long)
    assert any(parameter.requires_grad for parameter in model.parameters())
    assert not any(
        row.requires_grad for row in model.last_token_attention(tokens[:, :1], PrefixCache(3))
    )


@torch.no_grad()
def test_last_token_attention_equals_the_last_rows_of_the_maps(model: Transformer) -> None:
    tokens = torch.randint(17, (1, 12), generator=torch.Generator().manual_seed(3))
    cache = PrefixCache(12)
    model.hidden_states(tokens[:, :11], cache=cache)
    rows = list(model.last_token_attention(tokens[:, 11:], cache))
    x, rope = model.embedding(tokens), model._rotary.span(0, 12, torch.device("cpu"))
    for layer, row in zip(model.layers, rows, strict=True):
        assert isinstance(layer, DecoderLayer)
        maps = attention_maps(layer.attention, layer.attention_norm(x), rope)
        torch.testing.assert_close(row, maps[:, :, -1], rtol=1e-5, atol=1e-6)
        x = layer(x, rope, None, None)
    assert cache.get_seq_length() == 12
