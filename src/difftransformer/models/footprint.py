"""What a model keeps for each position that it has read, counted from a cache that it filled."""

import torch

from difftransformer.config.model import ModelConfig
from difftransformer.models.attention.registry import attention_class, configure
from difftransformer.models.cache import PrefixCache
from difftransformer.models.rotary import RotaryTable

_WIDTH, _POSITIONS = 8, 2


@torch.no_grad()
def cached_numbers(config: ModelConfig) -> int:
    """Return how many numbers the caches of all layers grow by with each position.

    An attention layer with the model's heads, on an input of few dimensions, fills a cache: so this
    holds for any variant, whatever it keeps.
    """
    attention = configure(config.attention, config.d_model)
    layer = attention_class(attention.variant)(attention, _WIDTH, 0, "eager")
    rope = RotaryTable(attention.head_dim, config.rope_theta).span(
        0, _POSITIONS, torch.device("cpu")
    )
    cache = PrefixCache(_POSITIONS)
    layer(torch.zeros(1, _POSITIONS, _WIDTH), rope, None, cache)
    held = sum(tensor.numel() for tensor in cache.held(0))
    return config.num_layers * held // _POSITIONS
