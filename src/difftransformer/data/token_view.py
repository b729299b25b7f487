"""The shards of a split read as one array, and what their damage is called."""

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difftransformer.errors import DataError

Tokens = NDArray[np.integer[Any]]

REBUILD = (
    "delete its manifest.json, make that file again (snakemake FOLDER/manifest.json), then give "
    "the same command"
)
"""What to do about a dataset that is damaged: made by itself, with the same content, it changes
nothing for what was trained on it."""


class TokenView:
    """The shards of a split as one read-only array, nothing loaded until it is sliced.

    Args:
        shards: Arrays of token ids.
        vocab_size: A larger id is damage, and is a `DataError` where it is read.
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
                f"a shard holds token id {largest}, its vocabulary has {limit}: it is damaged; "
                f"{REBUILD}"
            )
        return tokens

    def _range(self, start: int, stop: int) -> Tokens:
        """Tokens start..stop-1: a view inside one shard, a copy across shards."""
        first = min(bisect_right(self._starts, start) - 1, len(self._shards) - 1)
        offset = self._starts[first]
        if stop <= self._starts[first + 1]:
            return self._shards[first][start - offset : stop - offset]
        last = bisect_left(self._starts, stop)
        within = zip(self._shards[first:last], self._starts[first:last], strict=True)
        return np.concatenate([shard[max(0, start - at) : stop - at] for shard, at in within])
