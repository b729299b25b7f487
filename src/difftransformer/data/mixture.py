"""Which documents a split takes: of which source the next one is, and which ones are left out.

Sources are mixed so that their shares of the tokens follow their weights.

Long documents can be made to be more of what training reads: of documents with n tokens the share
p(n) = (min(n, L) / L)^power is kept, so a corpus with f(n) documents of length n becomes one with
f(n) p(n), and their share of the tokens is n f(n) p(n) over the sum of the same for all lengths.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from difftransformer.config.data import LengthUpsampling
from difftransformer.data.documents import Cursor
from difftransformer.errors import DataError

_READINGS_IN_VAIN = 100


class TokenizedDocument(NamedTuple):
    """Token ids of a document, or of a window of one.

    Attributes:
        tokens: Token ids; none where the document has no text.
        license: Its license.
        cursor: Place just behind it in its source.
        cut: Tokens of the document that were cut off.
    """

    tokens: NDArray[np.uint32]
    license: str
    cursor: Cursor
    cut: int = 0


class MixedDocument(NamedTuple):
    """A document as it enters a split; `source` is the number of its source, `cut` see above."""

    source: int
    tokens: NDArray[np.uint32]
    license: str
    cut: int = 0


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

    def _active(self) -> list[int]:
        return [number for number, ended in enumerate(self.exhausted) if not ended]

    def choose(self) -> int | None:
        """Return the number of the next source, or None when all have run out."""
        return min(self._active(), key=lambda i: self.taken[i] / self.weights[i], default=None)

    def room(self, choice: int, budget: int) -> int:
        """Return how many more tokens of a source fit its share of a budget, at least 1.

        Sources that ran out keep what they gave; the others share the rest by their weights.
        """
        active, left = self._active(), budget - sum(self.taken)
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
        blank: Documents without text that were passed over so far, by source.
    """

    def __init__(
        self,
        streams: Sequence[Iterator[TokenizedDocument]],
        mixture: Mixture,
        budget: int | None,
        cursors: Sequence[Cursor],
        blank: Sequence[int] | None = None,
    ) -> None:
        self.mixture, self.cursors = mixture, list(cursors)
        self.blank = list(blank) if blank is not None else [0] * len(streams)
        self._streams, self._budget = streams, budget

    @property
    def total(self) -> int:
        """Tokens taken from all sources."""
        return sum(self.mixture.taken)

    def __iter__(self) -> "MixedStream":
        return self

    def __next__(self) -> MixedDocument:
        if self.total == self._budget:
            raise StopIteration
        while (choice := self.mixture.choose()) is not None:
            document = next(self._streams[choice], None)
            if document is None:
                self.mixture.exhausted[choice] = True
                continue
            self.cursors[choice] = document.cursor
            if not len(document.tokens):
                self.blank[choice] += 1
                continue
            room = None if self._budget is None else self.mixture.room(choice, self._budget)
            tokens = document.tokens[:room]
            self.mixture.taken[choice] += len(tokens)
            return MixedDocument(choice, tokens, document.license, document.cut)
        raise StopIteration


def upsample(
    documents: Iterable[TokenizedDocument], upsampling: LengthUpsampling, seed: int
) -> Iterator[TokenizedDocument]:
    """Pass on the documents that training keeps, in order, one at a time.

    A document's own tokens, the reading of the corpus and the seed decide, so the choice is the
    same for any number of workers and restarts.

    Raises:
        DataError: The corpus was read many times over and nothing was kept.
    """
    last: int | None = None
    for document in documents:
        if not len(document.tokens):
            yield document
            continue
        reading = document.cursor.repeat
        last = reading if last is None else last
        if _draw(document, seed) < upsampling.keep_probability(len(document.tokens)):
            last = reading
            yield document
        elif reading > last + _READINGS_IN_VAIN:
            raise DataError(
                f"upsampling keeps none of the documents in {_READINGS_IN_VAIN} readings: lower "
                f"its power ({upsampling.power:g}) or full_length ({upsampling.full_length})"
            )


def _draw(document: TokenizedDocument, seed: int) -> float:
    """Return a number in [0, 1)."""
    digest = hashlib.sha256(f"{seed} {document.cursor.repeat} ".encode())
    digest.update(document.tokens.astype("<u4").tobytes())
    return int.from_bytes(digest.digest()[:7], "big") / 2.0**56
