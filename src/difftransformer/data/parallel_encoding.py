"""Encoding on several threads, in order, with a bounded amount of text in flight."""

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
    """Yield the windows of documents, each as a document of its own, in order.

    Args:
        excerpts: Documents and what is read of them.
        tokenizer: What encodes them.
        pool: Where it does; both libraries release the interpreter's lock while they encode.
        blocks_ahead: How many blocks are being encoded at most.
        longest: Tokens of a window; None: documents are whole.
        cuts: Whether what lies behind the last window is cut off and counted.
    """

    def encode(block: list[Excerpt]) -> list[EncodedWindows]:
        return [tokenizer.encode_windows(one.document.text, longest, one.windows) for one in block]

    waiting: deque[tuple[list[Excerpt], Future[list[EncodedWindows]]]] = deque()
    for block in _blocks(excerpts):
        waiting.append((block, pool.submit(encode, block)))
        if len(waiting) >= blocks_ahead:
            yield from _collect(*waiting.popleft(), cuts)
    while waiting:
        yield from _collect(*waiting.popleft(), cuts)


def _collect(
    block: list[Excerpt], encoded: Future[list[EncodedWindows]], cuts: bool
) -> Iterator[TokenizedDocument]:
    nothing = np.empty(0, dtype=np.uint32)
    for excerpt, (windows, cut) in zip(block, encoded.result(), strict=True):
        document = excerpt.document
        if not excerpt.windows:
            yield TokenizedDocument(nothing, document.license, document.cursor)
        last = len(windows) - 1
        for place, tokens in enumerate(windows):
            cursor = excerpt.cursor_behind(excerpt.windows[place], place == last)
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
