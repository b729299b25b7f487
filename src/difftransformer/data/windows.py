"""Documents of a split, and the windows of long ones, in rounds.

Where long documents are split, a pass over the corpus reads the first window of every document,
then the second, then windows 3 and 4, 5 to 8 and so on, so that a small budget is not one book.
Rounds double, so that encoding again from the start costs at most twice the text.
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
    """A document with the indices of its windows to read.

    Attributes:
        document: The document to read from.
        windows: Indices of the windows; empty for a document without text, which is counted.
        before: Cursor after the previous document.
    """

    document: Document
    windows: range
    before: Cursor

    def cursor_after(self, window: int, last: bool) -> Cursor:
        """Return the cursor after a window; ``last``: whether the window is the excerpt's last."""
        if last:
            return self.document.cursor._replace(window=_round(window).start)
        return self.before._replace(window=window + 1)


def excerpts(
    dataset: DatasetConfig, name: str, source: Source, split: str, start: Cursor
) -> Iterator[Excerpt]:
    """Yield the excerpts of a split from the cursor ``start`` on.

    Training repeats the source if its settings say so.

    Documents without text are yielded once, without windows.

    Raises:
        DataError: The source is to be repeated and has no document in the split.
    """
    repeats = dataset.when_exhausted == "repeat" and split == "train"
    for repeat in count(start.repeat):
        begin = start if repeat == start.repeat else Cursor(repeat)
        empty = True
        for excerpt in _iter_pass(dataset, source, split, begin):
            empty = empty and not excerpt.windows
            yield excerpt
        if not repeats:
            return
        if empty and begin == Cursor(repeat):
            raise DataError(empty_split_message(dataset, [name], split))


def _iter_pass(
    dataset: DatasetConfig, source: Source, split: str, start: Cursor
) -> Iterator[Excerpt]:
    """Yield the excerpts of one pass over the corpus, round by round."""
    size = dataset.longest(split) if dataset.long_documents == "split" else None
    share, window = dataset.validation_share, start.window
    while True:
        this = _round(window)
        # Documents before the cursor may have more windows.
        more = start != Cursor(start.repeat, window=this.start)
        first = not (start.repeat or window)
        iter_documents = iter_split_with_blank if first else documents
        before = start
        for document in iter_documents(source, split, share, start._replace(window=0)):
            blank = not document.text.strip()
            # A token has at least one byte, and the last of a window is the end-of-text token.
            max_tokens = len(document.text.encode("utf-8", "replace")) if size else 0
            if blank or size is None or max_tokens > this.start * (size - 1):
                yield Excerpt(document, range(0) if blank else range(window, this.stop), before)
            more = more or (size is not None and max_tokens > this.stop * (size - 1))
            window = window if blank else this.start
            before = document.cursor
        if size is None or not more:
            return
        window = this.stop
        start = Cursor(start.repeat, window=window)


def _round(window: int) -> range:
    """Return the windows of the round of a window: 0, 1, 2 to 3, 4 to 7 and so on."""
    first = 1 << window.bit_length() - 1 if window else 0
    return range(first, max(1, 2 * first))
