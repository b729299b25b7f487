"""Which source gives the next document, so that token shares follow the weights."""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from difftransformer.data.documents import Cursor


class TokenisedDocument(NamedTuple):
    """Token ids of a document, its licence and the cursor just behind it in its source."""

    tokens: NDArray[np.uint32]
    licence: str
    cursor: Cursor


class Taken(NamedTuple):
    """A document as it enters a split; `source` is the number of its source."""

    source: int
    tokens: NDArray[np.uint32]
    licence: str


class Mixture:
    """Always the source that lags furthest behind its weight; ties go to the first.

    The choice depends on nothing but what was taken before.

    Attributes:
        taken: Tokens taken so far, by source.
        exhausted: Which sources have run out.
    """

    def __init__(self, weights: Sequence[float], taken: Sequence[int] | None = None) -> None:
        self.weights = list(weights)
        self.taken = list(taken) if taken is not None else [0] * len(self.weights)
        self.exhausted = [False] * len(self.weights)

    def choose(self) -> int | None:
        """Return the number of the next source, or None when all have run out."""
        active = [number for number, ended in enumerate(self.exhausted) if not ended]
        return min(
            active, key=lambda number: self.taken[number] / self.weights[number], default=None
        )

    def room(self, choice: int, budget: int) -> int:
        """Return how many more tokens of a source fit its share of a budget, at least 1.

        Sources that ran out keep what they gave; the others share the rest by their weights.
        """
        active = [number for number, ended in enumerate(self.exhausted) if not ended]
        left = budget - sum(self.taken)
        rest = left + sum(self.taken[number] for number in active)
        share = self.weights[choice] / sum(self.weights[number] for number in active)
        return min(left, max(1, ceil(rest * share) - self.taken[choice]))


class MixedStream:
    """Interleaves the documents of several sources up to a budget of tokens.

    The document that meets a source's share of the budget is cut there, so budget and shares are
    met exactly; without a budget everything is taken and weights only set the order. A source that
    runs out is left and the others go on in its place.

    Attributes:
        cursors: Behind the last document taken, by source; with mixture.taken, the position.
    """

    def __init__(
        self,
        streams: Sequence[Iterator[TokenisedDocument]],
        mixture: Mixture,
        budget: int | None,
        cursors: Sequence[Cursor],
    ) -> None:
        self.mixture = mixture
        self.cursors = list(cursors)
        self._streams = streams
        self._budget = budget

    @property
    def total(self) -> int:
        """Tokens taken from all sources."""
        return sum(self.mixture.taken)

    def __iter__(self) -> "MixedStream":
        return self

    def __next__(self) -> Taken:
        if self.total == self._budget:
            raise StopIteration
        while (choice := self.mixture.choose()) is not None:
            document = next(self._streams[choice], None)
            if document is None:
                self.mixture.exhausted[choice] = True
                continue
            room = None if self._budget is None else self.mixture.room(choice, self._budget)
            tokens = document.tokens[:room]
            self.mixture.taken[choice] += len(tokens)
            self.cursors[choice] = document.cursor
            return Taken(choice, tokens, document.licence)
        raise StopIteration
