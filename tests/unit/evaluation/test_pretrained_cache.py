"""Which transformers models can resume from cached keys and values only."""

from typing import Any

import pytest
from small_decoders import model_of
from transformers import MambaConfig, MambaForCausalLM

from difftransformer.errors import ConfigError
from difftransformer.evaluation.pretrained_cache import require_prefix_caching
from difftransformer.models.language_model import HFCausalLM


def test_models_with_a_key_value_cache_are_accepted() -> None:
    require_prefix_caching(HFCausalLM(model_of("qwen2")))
    require_prefix_caching(HFCausalLM(model_of("mistral", sliding_window=4).bfloat16()))


def test_a_model_with_a_recurrent_state_is_refused() -> None:
    config = MambaConfig(vocab_size=48, hidden_size=16, state_size=4, num_hidden_layers=2)
    config.max_position_embeddings = 64
    with pytest.raises(ConfigError, match=r"^MambaForCausalLM: caches more than keys and values"):
        require_prefix_caching(HFCausalLM(MambaForCausalLM(config).eval()))


def test_a_model_that_reads_another_state_is_refused() -> None:
    def forward(past_key_values: Any = None, **_: Any) -> Any:
        return past_key_values.conv_states

    inner = model_of("llama")
    original = inner.model.forward
    inner.model.forward = lambda **inputs: (
        forward(**inputs) if "past_key_values" in inputs else original(**inputs)
    )
    with pytest.raises(ConfigError, match=r"caches more .* \(.*conv_states") as refusal:
        require_prefix_caching(HFCausalLM(inner))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_length_dependent_rope_is_refused(kind: str) -> None:
    factors: dict[str, Any] = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0}
    rope |= factors if kind == "longrope" else {}
    rope["original_max_position_embeddings"] = 32
    with pytest.raises(ConfigError, match=f"depends on the length of the text .{kind}.") as refusal:
        require_prefix_caching(HFCausalLM(model_of("llama", rope_parameters=rope)))
    assert "\n" not in str(refusal.value)
