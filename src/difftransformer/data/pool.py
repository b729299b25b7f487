"""Encoding on several threads, in order, with a bounded amount of text in flight."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from difftransformer.data.mixture import TokenisedDocument
from difftransformer.data.tokenizer import TextTokenizer, Windows
from difftransformer.data.windows import Excerpt

BLOCK_CHARACTERS = 1 << 18

Encoded = list[Windows]
Submit = Callable[[list[Excerpt], int | None], Callable[[], Encoded]]


@contextmanager
def encoders(tokenizer: Path, workers: int) -> Iterator[Submit]:
    """Give a function that starts encoding excerpts and returns a function that waits for them.

    It takes the excerpts and the number of tokens of a window, or None. Both libraries of
    tokenizers release the interpreter's lock while they encode.
    """
    # The tokenizers library would start threads of its own.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    opened = TextTokenizer(tokenizer)

    def encode(block: list[Excerpt], longest: int | None) -> Encoded:
        return [opened.windows(one.document.text, longest, one.windows) for one in block]

    with ThreadPoolExecutor(workers, "encoder") as pool:
        try:
            yield lambda block, longest: pool.submit(encode, block, longest).result
        finally:
            pool.shutdown(cancel_futures=True)


def encode_documents(
    excerpts: Iterable[Excerpt],
    submit: Submit,
    blocks_ahead: int,
    longest: int | None,
    cuts: bool = True,
) -> Iterator[TokenisedDocument]:
    """Yield the windows of documents, each as a document of its own, in order.

    Args:
        excerpts: Documents and what is read of them.
        submit: What encodes them, see `encoders`.
        blocks_ahead: How many blocks are being encoded at most.
        longest: Tokens of a window; None: documents are whole.
        cuts: Whether what lies behind the last window is cut off and counted.
    """
    waiting: deque[tuple[list[Excerpt], Callable[[], Encoded]]] = deque()
    for block in _blocks(excerpts):
        waiting.append((block, submit(block, longest)))
        if len(waiting) >= blocks_ahead:
            yield from _collect(*waiting.popleft(), cuts)
    while waiting:
        yield from _collect(*waiting.popleft(), cuts)


def _collect(
    block: list[Excerpt], wait: Callable[[], Encoded], cuts: bool
) -> Iterator[TokenisedDocument]:
    nothing = np.empty(0, dtype=np.uint32)
    for excerpt, (windows, cut) in zip(block, wait(), strict=True):
        document = excerpt.document
        if not excerpt.windows:
            yield TokenisedDocument(nothing, document.licence, document.cursor)
        last = len(windows) - 1
        for place, tokens in enumerate(windows):
            cursor = excerpt.cursor_behind(excerpt.windows[place], place == last)
            yield TokenisedDocument(tokens, document.licence, cursor, cut if cuts else 0)


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
