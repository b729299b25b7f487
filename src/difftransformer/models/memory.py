"""Memory that a forward pass leaves for the backward one, found by running one sequence of it.

Every variant and backend saves other tensors; asking autograd what it keeps is right for all of
them, also for those that are not written yet.

Shapes: B = sequences, T = positions.
"""

import torch
from torch import Tensor

from difftransformer.config.model import ModelConfig
from difftransformer.models.transformer import Transformer

_PROBE = 128
"""Positions of the shortest probe; three lengths fix the constant, linear and quadratic part."""
_DIRECT = 1 << 19
"""Up to this many positions times d_model, T itself is run."""
_VOCABULARY = 64


def saved_bytes_per_layer(
    config: ModelConfig, backend: str, seq_len: int, device: torch.device
) -> float:
    """Return the bytes that a layer keeps for the backward pass of one sequence of T positions."""
    if seq_len <= 3 * _PROBE or seq_len * config.d_model <= _DIRECT:
        return _per_layer(config, backend, seq_len, device)
    one, two, three = (_per_layer(config, backend, _PROBE * times, device) for times in (1, 2, 3))
    x = seq_len / _PROBE
    # Lagrange's parabola through the lengths 1, 2 and 3.
    return one * (x - 2) * (x - 3) / 2 - two * (x - 1) * (x - 3) + three * (x - 1) * (x - 2) / 2


def _per_layer(config: ModelConfig, backend: str, seq_len: int, device: torch.device) -> float:
    return _saved(config, backend, 2, seq_len, device) - _saved(config, backend, 1, seq_len, device)


def _saved(
    config: ModelConfig, backend: str, layers: int, seq_len: int, device: torch.device
) -> int:
    """Bytes of everything but parameters that autograd keeps, each storage once."""
    small = config.model_copy(update={"num_layers": layers, "vocab_size": _VOCABULARY})
    model = Transformer(small, backend).to(device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    tokens = torch.zeros(1, seq_len, dtype=torch.long, device=device)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = model.hidden_states(tokens)
    total = sum(kept.values())
    del hidden
    return total
