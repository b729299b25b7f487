"""A key/value cache in plain torch, with the interface of transformers' ``DynamicCache``."""

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of every layer, which grow by concatenation.

    Shapes: B = batch, G = key/value heads, T = new positions, S = all positions.
    """

    def __init__(self) -> None:
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, keys: Tensor, values: Tensor, layer_index: int, /) -> tuple[Tensor, Tensor]:
        """Append [B, G, T, *] keys and values of a layer; return all of them, [B, G, S, *]."""
        if layer_index in self._layers:
            held_keys, held_values = self._layers[layer_index]
            keys = torch.cat((held_keys, keys), dim=2)
            values = torch.cat((held_values, values), dim=2)
        self._layers[layer_index] = keys, values
        return keys, values

    def get_seq_length(self) -> int:
        """Positions held by the first layer."""
        return self._layers[0][0].shape[2] if self._layers else 0
