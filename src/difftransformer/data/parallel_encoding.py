"""Encoding on several threads, in order, with bounded memory."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from difftransformer.data.mixture import TokenizedDocument
from difftransformer.data.tokenizer import EncodedWindows, TextTokenizer
from difftransformer.data.windows import Excerpt

BLOCK_CHARACTERS = 1 << 18


def encode_documents(
    excerpts: Iterable[Excerpt],
    tokenizer: TextTokenizer,
    pool: ThreadPoolExecutor,
    blocks_ahead: int,
    longest: int | None,
    cuts: bool = True,
) -> Iterator[TokenizedDocument]:
    """Yield the token ids of each window of the documents, in order.

    Args:
        excerpts: Documents with the numbers of their windows to encode.
        tokenizer: Tokenizer that encodes the windows.
        pool: Pool of threads; both tokenizer libraries release the GIL while they encode.
        blocks_ahead: Largest number of blocks that are encoded at one time.
        longest: Largest number of tokens in a window; None: documents are not split.
        cuts: Whether the text after the last window is truncated and counted.
    """

    def encode(block: list[Excerpt]) -> list[EncodedWindows]:
        return [
            tokenizer.encode_windows(excerpt.document.text, longest, excerpt.windows)
            for excerpt in block
        ]

    pending: deque[tuple[list[Excerpt], Future[list[EncodedWindows]]]] = deque()
    for block in _blocks(excerpts):
        pending.append((block, pool.submit(encode, block)))
        if len(pending) >= blocks_ahead:
            yield from _collect(*pending.popleft(), cuts)
    while pending:
        yield from _collect(*pending.popleft(), cuts)


def _collect(
    block: list[Excerpt], encoded: Future[list[EncodedWindows]], cuts: bool
) -> Iterator[TokenizedDocument]:
    nothing = np.empty(0, dtype=np.uint32)
    for excerpt, (windows, cut) in zip(block, encoded.result(), strict=True):
        document = excerpt.document
        if not excerpt.windows:
            yield TokenizedDocument(nothing, document.license, document.cursor)
        last = len(windows) - 1
        for index, tokens in enumerate(windows):
            cursor = excerpt.cursor_after(excerpt.windows[index], index == last)
            yield TokenizedDocument(tokens, document.license, cursor, cut if cuts else 0)


def _blocks(excerpts: Iterable[Excerpt]) -> Iterator[list[Excerpt]]:
    block, characters = [], 0
    for excerpt in excerpts:
        block.append(excerpt)
        characters += len(excerpt.document.text)
        if characters >= BLOCK_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block
