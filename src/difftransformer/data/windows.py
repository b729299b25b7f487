"""Which documents of a source a split reads, and which windows of long ones, in rounds.

Where long documents are split, a reading of the corpus takes the first window of every document,
then the second of those that have one, then windows 3 and 4, 5 to 8 and so on: every document is
read before any is read further, so that a small budget is not one book. Rounds double, so that
reading and encoding from the beginning again costs no more than twice the text.
"""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from difftransformer.config.data import DatasetConfig
from difftransformer.data.documents import (
    Cursor,
    Document,
    Source,
    documents,
    empty_split_message,
    iter_split_with_blank,
)
from difftransformer.errors import DataError


class Excerpt(NamedTuple):
    """A document, the windows of it that are to be read, and the cursor before it.

    Attributes:
        document: The document.
        windows: Numbers of windows of as many tokens as a document may have; empty for a document
            without text, which is counted.
        before: Cursor behind the document before it.
    """

    document: Document
    windows: range
    before: Cursor

    def cursor_behind(self, window: int, last: bool) -> Cursor:
        """Return the cursor behind a window; ``last``: no other of these follows."""
        if last:
            return self.document.cursor._replace(window=_round(window).start)
        return self.before._replace(window=window + 1)


def excerpts(
    dataset: DatasetConfig, name: str, source: Source, split: str, start: Cursor
) -> Iterator[Excerpt]:
    """Yield what a split reads of a source from a cursor on, over and over in training if so set.

    Documents without text come once, with no windows.

    Raises:
        DataError: It is to be read over and over and holds nothing for the split.
    """
    again = dataset.when_exhausted == "repeat" and split == "train"
    for repeat in count(start.repeat):
        begin = start if repeat == start.repeat else Cursor(repeat)
        found = False
        for excerpt in _reading(dataset, source, split, begin):
            found = found or bool(excerpt.windows)
            yield excerpt
        if not again:
            return
        if not found and begin == Cursor(repeat):
            raise DataError(empty_split_message(dataset, [name], split))


def _reading(
    dataset: DatasetConfig, source: Source, split: str, start: Cursor
) -> Iterator[Excerpt]:
    """Yield the excerpts of one reading of the corpus, round by round."""
    size = dataset.longest(split) if dataset.long_documents == "split" else None
    share, window = dataset.validation_share, start.window
    while True:
        this = _round(window)
        more = start != Cursor(start.repeat, window=this.start)  # what came before may have more
        first = not (start.repeat or window)
        read = iter_split_with_blank if first else documents
        before = start
        for document in read(source, split, share, start._replace(window=0)):
            blank = not document.text.strip()
            # A token is of one byte at least, and one of a window ends it.
            most = len(document.text.encode("utf-8", "replace")) if size else 0
            if blank or size is None or most > this.start * (size - 1):
                yield Excerpt(document, range(0) if blank else range(window, this.stop), before)
            more = more or (size is not None and most > this.stop * (size - 1))
            window = window if blank else this.start
            before = document.cursor
        if size is None or not more:
            return
        window = this.stop
        start = Cursor(start.repeat, window=window)


def _round(window: int) -> range:
    """Return the windows that are read in the same round: 0, 1, 2 to 3, 4 to 7 and so on."""
    first = 1 << window.bit_length() - 1 if window else 0
    return range(first, max(1, 2 * first))
