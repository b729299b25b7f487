"""A KV cache for pretrained models of transformers whose prompts are computed in parts."""

import torch
from transformers import DynamicCache

from difftransformer.errors import ConfigError, in_one_line
from difftransformer.models.language_model import HFCausalLM

_LENGTH_DEPENDENT_ROPE = {"dynamic", "longrope"}
"""Rotary embeddings whose frequencies follow from the longest position of a call."""
_TOLERANCE = 0.05
"""Largest difference of hidden states, relative to the largest, that is rounding (bf16 too)."""


class TruncatableDynamicCache(DynamicCache):
    """transformers' KV cache that keeps all positions, also in layers with a sliding window."""

    def truncate(self, length: int) -> None:
        """Drop all cached positions except the first ``length``."""
        cached = self.get_seq_length()
        assert 0 <= length <= cached, (length, cached)
        self.crop(length - cached)


@torch.inference_mode()
def require_prefix_caching(model: HFCausalLM) -> None:
    """Check that a pretrained model can continue a text from a KV cache of its first part.

    A text computed in two parts must give the hidden states of the full text, up to rounding.

    Raises:
        ConfigError: The model caches more than keys and values, or its rotary embedding depends on
            the length of the text.
    """
    config = model.inner.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    entries = [entry for entry in (rope, *rope.values()) if isinstance(entry, dict)]
    name, reason = type(model.inner).__name__, "and prompts are computed in parts"
    if kinds := sorted({str(entry.get("rope_type")) for entry in entries} & _LENGTH_DEPENDENT_ROPE):
        raise ConfigError(
            f"{name}: its rotary embedding depends on the length of the text ({kinds[0]}), "
            f"{reason}: choose a model without it"
        )
    tokens = torch.arange(1, 7, device=model.output_weight.device)[None] % model.vocab_size
    try:
        full, cache = model.hidden_states(tokens), TruncatableDynamicCache()
        model.hidden_states(tokens[:, :4], cache=cache)
        second_part = model.hidden_states(tokens[:, 4:], cache=cache)
        difference = float((second_part - full[:, 4:]).abs().max() / full.abs().max())
    except Exception as error:  # a layer that looks for another state raises anything
        raise ConfigError(
            f"{name}: caches more than keys and values ({in_one_line(error)}), {reason}"
        ) from None
    if not difference <= _TOLERANCE:
        raise ConfigError(f"{name}: caches more than keys and values, {reason}")
