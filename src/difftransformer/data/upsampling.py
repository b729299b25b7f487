"""Which documents training keeps, so that long ones make up more of what is read.

Of documents with n tokens the share p(n) = (min(n, L) / L)^power is kept, so a corpus with f(n)
documents of length n becomes one with f(n) p(n), and their share of the tokens is n f(n) p(n) over
the sum of the same for all lengths.
"""

import hashlib
from collections.abc import Iterable, Iterator

from difftransformer.config.data import LengthUpsampling
from difftransformer.data.mixture import TokenisedDocument
from difftransformer.errors import DataError

_READINGS_IN_VAIN = 100


def kept(
    documents: Iterable[TokenisedDocument], upsampling: LengthUpsampling, seed: int
) -> Iterator[TokenisedDocument]:
    """Pass on the documents that training keeps, in order, one at a time.

    A document's own tokens, the reading of the corpus and the seed decide, so the choice is the
    same for any number of workers and restarts.

    Raises:
        DataError: The corpus was read many times over and nothing was kept.
    """
    last: int | None = None
    for document in documents:
        reading = document.cursor.repeat
        last = reading if last is None else last
        chance = upsampling.keep_probability(len(document.tokens))
        if _draw(document, seed) < chance:
            last = reading
            yield document
        elif reading > last + _READINGS_IN_VAIN:
            raise DataError(
                f"upsampling keeps none of the documents in {_READINGS_IN_VAIN} readings: lower "
                f"its power ({upsampling.power:g}) or full_length ({upsampling.full_length})"
            )


def _draw(document: TokenisedDocument, seed: int) -> float:
    """Return a number in [0, 1)."""
    digest = hashlib.sha256(f"{seed} {document.cursor.repeat} ".encode())
    digest.update(document.tokens.astype("<u4").tobytes())
    return int.from_bytes(digest.digest()[:7], "big") / 2.0**56
