"""Mixture of sources by weight, and upsampling of long documents.

Upsampling keeps documents of n tokens with probability p(n) = (min(n, L) / L)^power: a corpus with
f(n) documents of length n becomes one with f(n) p(n), and their share of the tokens is n f(n) p(n)
divided by the sum of n f(n) p(n) over all lengths.
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

_MAX_EMPTY_PASSES = 100


class TokenizedDocument(NamedTuple):
    """The token ids of a document, or of one window of a document.

    Attributes:
        tokens: Token ids; empty where the document has no text.
        license: License of the document.
        cursor: Position after the document or window in its source.
        cut: Number of the document's tokens that were truncated.
    """

    tokens: NDArray[np.uint32]
    license: str
    cursor: Cursor
    cut: int = 0


class MixedDocument(NamedTuple):
    """A document of a split with the index of its source; `cut` is as in `TokenizedDocument`."""

    source: int
    tokens: NDArray[np.uint32]
    license: str
    cut: int = 0


class Mixture:
    """Chooser of the next source: the one whose tokens are furthest below its weight.

    Ties go to the first source. The choice depends only on the tokens consumed before.

    Attributes:
        consumed: Tokens consumed so far, by source.
        exhausted: Whether each source is exhausted.
    """

    def __init__(self, weights: Sequence[float], consumed: Sequence[int] | None = None) -> None:
        self.weights = list(weights)
        self.consumed = list(consumed) if consumed is not None else [0] * len(self.weights)
        self.exhausted = [False] * len(self.weights)

    def _active(self) -> list[int]:
        return [number for number, ended in enumerate(self.exhausted) if not ended]

    def choose(self) -> int | None:
        """Return the index of the next source to read, or None if all are exhausted."""
        return min(self._active(), key=lambda i: self.consumed[i] / self.weights[i], default=None)

    def remaining(self, choice: int, budget: int) -> int:
        """Return the number of tokens, at least 1, left in a source's share of a token budget.

        The share that exhausted sources cannot use is divided among the others by weight.
        """
        active, left = self._active(), budget - sum(self.consumed)
        active_budget = left + sum(self.consumed[number] for number in active)
        share = self.weights[choice] / sum(self.weights[number] for number in active)
        return min(left, max(1, ceil(active_budget * share) - self.consumed[choice]))


class MixedStream:
    """An iterator that interleaves documents of several sources up to a budget of tokens.

    The document that fills a source's share of the budget is truncated there, so budget and shares
    are met exactly; without a budget all documents are yielded and weights only set the order. The
    other sources replace an exhausted one.

    Attributes:
        cursors: Position after the last document, by source. Together with mixture.consumed it is
            the state to resume from.
        blank: Documents without text that were skipped so far, by source.
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
        """Number of tokens consumed from all sources."""
        return sum(self.mixture.consumed)

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
            limit = None if self._budget is None else self.mixture.remaining(choice, self._budget)
            tokens = document.tokens[:limit]
            self.mixture.consumed[choice] += len(tokens)
            return MixedDocument(choice, tokens, document.license, document.cut)
        raise StopIteration


def upsample(
    documents: Iterable[TokenizedDocument], upsampling: LengthUpsampling, seed: int
) -> Iterator[TokenizedDocument]:
    """Yield the documents kept by the upsampling of long documents, in order.

    The choice is a function of a document's tokens, the pass over the corpus and the seed, so it is
    the same for any number of workers and restarts.

    Raises:
        DataError: No document was kept in many passes over the corpus.
    """
    last: int | None = None
    for document in documents:
        if not len(document.tokens):
            yield document
            continue
        repeat = document.cursor.repeat
        last = repeat if last is None else last
        if _uniform(document, seed) < upsampling.keep_probability(len(document.tokens)):
            last = repeat
            yield document
        elif repeat > last + _MAX_EMPTY_PASSES:
            raise DataError(
                f"upsampling keeps no document in {_MAX_EMPTY_PASSES} passes over the corpus: "
                f"lower its power ({upsampling.power:g}) or full_length ({upsampling.full_length})"
            )


def _uniform(document: TokenizedDocument, seed: int) -> float:
    """Return a pseudorandom number in [0, 1) for a document."""
    digest = hashlib.sha256(f"{seed} {document.cursor.repeat} ".encode())
    digest.update(document.tokens.astype("<u4").tobytes())
    return int.from_bytes(digest.digest()[:7], "big") / 2.0**56
