"""What a model keeps for each position that it has read, counted from a cache that it filled."""

import torch

from difftransformer.config.model import ModelConfig
from difftransformer.models.cache import PrefixCache
from difftransformer.models.transformer import Transformer

_POSITIONS = 2


def cached_numbers(config: ModelConfig) -> int:
    """Return how many numbers the caches of all layers grow by with each position.

    The model runs without memory on the meta device, so this holds for any variant, whatever it
    puts into the cache.
    """
    with torch.device("meta"), torch.no_grad():
        model = Transformer(config.model_copy(update={"num_layers": 1}), "eager")  # all are alike
        cache = PrefixCache(_POSITIONS)
        model.hidden_states(torch.zeros(1, _POSITIONS, dtype=torch.long), cache=cache)
    held = sum(tensor.numel() for tensor in cache.held(0))
    return config.num_layers * held // _POSITIONS
