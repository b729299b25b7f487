"""The config under the attribute names of transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from difftransformer import DiffTransformerConfig, DiffTransformerForCausalLM
from difftransformer.convert.checkpoint import read_config
from difftransformer.errors import UserError
from difftransformer.models.attention.registry import configure

SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def test_a_config_accepts_the_attribute_names_of_transformers(tmp_path: Path) -> None:
    config = DiffTransformerConfig(**SIZES, max_position_embeddings=np.int64(64))
    model = DiffTransformerForCausalLM(config).eval()
    actual = config.model_config()
    assert (actual.vocab_size, actual.d_model, actual.num_layers) == (61, 32, 2)
    assert (actual.ffn_dim, actual.max_positions) == (88, 64)  # 8/3 of the width, upwards
    assert actual.attention == configure({"variant": "diff_v1", "num_heads": 4, "head_dim": 4}, 32)
    assert model.model.layers[0].attention.o_proj.weight.shape == (32, 32)  # heads fill the width
    model.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    assert not stored.keys() & SIZES.keys()  # each setting once, below `model`
    again = DiffTransformerForCausalLM.from_pretrained(tmp_path)
    tokens = torch.arange(9)[None]
    assert torch.equal(again(tokens).logits, model(tokens).logits)
    assert read_config(tmp_path) == actual


def test_names_are_read_written_and_in_the_dictionary_that_tools_read() -> None:
    model = {
        "vocab_size": np.int64(61), "d_model": 32, "num_layers": 2, "ffn_dim": 40,
        "attention": {"variant": "softmax", "head_dim": 8, "num_kv_heads": 2},
        "max_positions": 64, "tie_embeddings": True,
    }  # fmt: skip
    config = DiffTransformerConfig(model=model, hidden_size=64)
    expected = {
        "vocab_size": 61, "hidden_size": 64, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        "tie_word_embeddings": True,
    }  # fmt: skip
    assert {name: config.to_dict()[name] for name in expected} == expected
    config.vocab_size, config.rope_theta, config.tie_word_embeddings = np.int64(70), 5e5, False
    changed = config.model_config()
    assert (changed.vocab_size, changed.rope_theta, changed.tie_embeddings) == (70, 5e5, False)
    assert model["vocab_size"] == 61 and model["d_model"] == 32  # the caller's is left alone
    assert json.loads(config.to_json_string())["model"]["vocab_size"] == 70


def test_names_hold_what_factors_made() -> None:
    attention = {
        "variant": "diff_v2", "head_dim": 4, "head_dim_multiplier": 2,
        "heads_per_kv_head": 2, "num_heads_multiplier": 1.5,
    }  # fmt: skip
    config = DiffTransformerConfig(
        **SIZES | {"num_attention_heads": None}, model={"attention": attention}
    )
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (6, 2, 8)
    again = DiffTransformerConfig.from_dict(config.to_dict())
    assert (again.num_attention_heads, again.num_key_value_heads, again.head_dim) == (6, 2, 8)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"num_attention_heads": 5}, "5 heads of diff_v1 do not fill hidden_size 32"),
        ({"vocab_size": None}, "vocab_size: required key is missing"),
        ({"attention_bias": True}, "attention_bias is always False"),
        ({"hidden_act": "gelu"}, "hidden_act is always 'silu'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "only rope_theta"),
        ({"variant": "diff_v2"}, "variant: pass model={'attention': {'variant': 'diff_v2'}}"),
        ({"lambda_init": 0.3}, "lambda_init: pass model={'attention': {'lambda_init': 0.3}}"),
        ({"num_layers": 9}, "num_layers: pass model={'num_layers': 9}"),
        ({"sliding_window": 16}, "sliding_window: no model here has this setting, got 16"),
        ({"hidden_sise": 32}, "hidden_sise: no model .*; did you mean 'hidden_size'"),
        ({"per_layer_config": {0: {"rms_norm_eps": 1e-3}}}, "per_layer_config: no model here"),
        ({"model": {"attention": {"variant": "diff_v9"}}}, "unknown variant 'diff_v9'"),
    ],
)
def test_impossible_configs_are_a_one_line_error(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why) as refusal:
        DiffTransformerForCausalLM(DiffTransformerConfig(**SIZES | options))
    assert "\n" not in str(refusal.value)


def test_what_transformers_stores_in_configs_is_taken() -> None:
    stored = {
        "architectures": ["Llama"], "id2label": {0: "a"}, "num_labels": 1, "torch_dtype": "float32",
        "name_or_path": "x", "_commit_hash": "y", "auto_map": {}, "max_length": 20,
        "transformers_version": "5", "attn_implementation": "eager", "sliding_window": None,
    }  # fmt: skip
    assert DiffTransformerConfig(**SIZES, **stored).hidden_size == 32
