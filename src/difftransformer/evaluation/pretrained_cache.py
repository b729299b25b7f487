"""Keys and values of a model of transformers, for prompts that are computed in parts."""

import torch
from transformers import DynamicCache

from difftransformer.errors import ConfigError, in_one_line
from difftransformer.models.language_model import HFCausalLM

_BY_LENGTH = {"dynamic", "longrope"}
"""Kinds of rotary positions whose frequencies follow from the longest position of a call."""
_MOST = 0.05
"""Largest difference of states, as a share of the largest, that is rounding, in bf16 too."""


class GrowingCache(DynamicCache):
    """Keys and values of all positions, of layers with a sliding window, too."""

    def truncate(self, length: int) -> None:
        """Forget all but the first ``length`` positions."""
        held = self.get_seq_length()
        assert 0 <= length <= held, (length, held)
        self.crop(length - held)


@torch.inference_mode()
def require_parts(model: HFCausalLM) -> None:
    """Check that a model makes of a text in two parts what it makes of all of it.

    Raises:
        ConfigError: It keeps more than keys and values, or turns them by the length of the text.
    """
    settings = model.inner.config.get_text_config()
    rope = getattr(settings, "rope_parameters", None) or {}
    kinds = {str(one.get("rope_type")) for one in (rope, *rope.values()) if isinstance(one, dict)}
    name, parts = type(model.inner).__name__, "and prompts are computed in parts"
    if found := sorted(kinds & _BY_LENGTH):
        raise ConfigError(
            f"{name}: its rotary positions follow from how long a text is ({found[0]}), {parts}: "
            "take a model without it"
        )
    tokens = torch.arange(1, 7, device=model.output_weight.device)[None] % model.vocab_size
    try:
        whole, cache = model.hidden_states(tokens), GrowingCache()
        model.hidden_states(tokens[:, :4], cache=cache)
        rest = model.hidden_states(tokens[:, 4:], cache=cache)
        differ = float((rest - whole[:, 4:]).abs().max() / whole.abs().max())
    except Exception as error:  # of all kinds, where a layer looks for another state
        raise ConfigError(
            f"{name}: keeps more than keys and values ({in_one_line(error)}), {parts}"
        ) from None
    if not differ <= _MOST:
        raise ConfigError(f"{name}: keeps more than keys and values, {parts}")
