"""A key/value cache in plain torch, with the interface of transformers' ``DynamicCache``."""

from typing import Protocol

from torch import Tensor

from difftransformer.errors import ConfigError
from difftransformer.models.attention.base import Cache


class CroppableCache(Cache, Protocol):
    """A key/value cache that can be cut back to a prefix."""

    def keep(self, length: int) -> None:
        """Forget all but the first ``length`` positions."""


class PrefixCache:
    """Keys and values of every layer in buffers of their full size, of which a prefix can be kept.

    Nothing is copied when the next sequence begins like the one before: `keep` their common prefix
    and go on behind it. Shapes: B = batch, G = key/value heads, T = new positions, S = all
    positions.
    """

    def __init__(self, capacity: int) -> None:
        """Make an empty cache for sequences of at most ``capacity`` positions."""
        self._capacity = capacity
        self._buffers: dict[int, list[Tensor]] = {}
        self._lengths: dict[int, int] = {}

    def update(self, keys: Tensor, values: Tensor, layer_index: int, /) -> tuple[Tensor, Tensor]:
        """Append [B, G, T, *] keys and values of a layer; return all of them, [B, G, S, *]."""
        start = self._lengths.get(layer_index, 0)
        stop = start + keys.shape[2]
        if stop > self._capacity:
            raise ConfigError(
                f"a cache for {self._capacity} positions was given {stop}: make it larger"
            )
        if layer_index not in self._buffers:
            self._buffers[layer_index] = [
                new.new_empty(*new.shape[:2], self._capacity, new.shape[3])
                for new in (keys, values)
            ]
        for buffer, new in zip(self._buffers[layer_index], (keys, values), strict=True):
            buffer[:, :, start:stop] = new
        self._lengths[layer_index] = stop
        return self.held(layer_index)

    def held(self, layer_index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, [B, G, S, *], as views."""
        keys, values = (
            buffer[:, :, : self._lengths[layer_index]] for buffer in self._buffers[layer_index]
        )
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions held by a layer."""
        return self._lengths.get(layer_idx, 0)

    def keep(self, length: int) -> None:
        """Forget all but the first ``length`` positions."""
        assert 0 <= length <= self.get_seq_length(), (length, self.get_seq_length())
        self._lengths = dict.fromkeys(self._lengths, length)
