"""The shards of a split as one array."""

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difftransformer.errors import DataError

Tokens = NDArray[np.integer[Any]]

REBUILD = (
    "delete its manifest.json, rebuild it (snakemake FOLDER/manifest.json), then run the same "
    "command again"
)
"""Advice for a damaged dataset; if the new content is the same, nothing is trained again."""


class TokenView:
    """The shards of a split as one read-only, memory-mapped array of token ids.

    Args:
        shards: Token ids of each shard.
        vocab_size: Size of the vocabulary; an id outside of it raises a `DataError` when read.
    """

    def __init__(self, shards: list[Tokens], vocab_size: int) -> None:
        self._shards, self._vocab_size = shards, vocab_size
        self._starts = [0, *np.cumsum([len(shard) for shard in shards]).tolist()]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: slice) -> Tokens:
        start, stop, step = index.indices(len(self))
        assert step == 1, index
        tokens, limit = self._range(start, max(start, stop)), self._vocab_size
        if tokens.size and (largest := int(tokens.max())) >= limit:
            raise DataError(
                f"a shard has token id {largest}, its vocabulary {limit} ids: it is damaged; "
                f"{REBUILD}"
            )
        return tokens

    def _range(self, start: int, stop: int) -> Tokens:
        """Return tokens start..stop-1: a view within a shard, a copy across shards."""
        first = min(bisect_right(self._starts, start) - 1, len(self._shards) - 1)
        offset = self._starts[first]
        if stop <= self._starts[first + 1]:
            return self._shards[first][start - offset : stop - offset]
        last = bisect_left(self._starts, stop)
        within = zip(self._shards[first:last], self._starts[first:last], strict=True)
        return np.concatenate([shard[max(0, start - at) : stop - at] for shard, at in within])
