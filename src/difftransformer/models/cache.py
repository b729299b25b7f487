"""A key/value cache in plain torch, with the interface of transformers' ``DynamicCache``."""

from typing import Protocol

from torch import Tensor

from difftransformer.errors import ConfigError
from difftransformer.models.attention.base import Cache


class TruncatableCache(Cache, Protocol):
    """Interface of a key/value cache that can be truncated to a prefix."""

    def truncate(self, length: int) -> None:
        """Drop all cached positions after the first ``length``."""


class PrefixCache:
    """A preallocated key/value cache of all layers that can be truncated to a prefix.

    To continue from a common prefix of two sequences (prefix caching), `truncate` to it; nothing is
    copied. Shapes: B = batch, G = key/value heads, T = new positions, S = all positions.
    """

    def __init__(self, capacity: int) -> None:
        """Make an empty cache for sequences of at most ``capacity`` positions."""
        self._capacity = capacity
        self._buffers: dict[int, list[Tensor]] = {}
        self._lengths: dict[int, int] = {}

    def update(self, keys: Tensor, values: Tensor, layer_index: int, /) -> tuple[Tensor, Tensor]:
        """Append new keys and values [B, G, T, *] of a layer; return all cached, [B, G, S, *]."""
        start = self._lengths.get(layer_index, 0)
        stop = start + keys.shape[2]
        if stop > self._capacity:
            raise ConfigError(
                f"the cache has a capacity of {self._capacity} positions and would hold {stop}: "
                "make it with a larger capacity"
            )
        if layer_index not in self._buffers:
            self._buffers[layer_index] = [
                new.new_empty(*new.shape[:2], self._capacity, new.shape[3])
                for new in (keys, values)
            ]
        for buffer, new in zip(self._buffers[layer_index], (keys, values), strict=True):
            buffer[:, :, start:stop] = new
        self._lengths[layer_index] = stop
        return self.get(layer_index)

    def get(self, layer_index: int) -> tuple[Tensor, Tensor]:
        """Return views of all cached keys and values of one layer, [B, G, S, *]."""
        length = self._lengths[layer_index]
        keys, values = (buffer[:, :, :length] for buffer in self._buffers[layer_index])
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of positions that the cache holds for one layer."""
        return self._lengths.get(layer_idx, 0)

    def truncate(self, length: int) -> None:
        """Drop all cached positions after the first ``length``."""
        assert 0 <= length <= self.get_seq_length(), (length, self.get_seq_length())
        self._lengths = dict.fromkeys(self._lengths, length)
