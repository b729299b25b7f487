"""Encoding on several processes, in order, with a bounded amount of text in flight."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from difftransformer.data.documents import Document
from difftransformer.data.mixture import TokenisedDocument
from difftransformer.data.tokenizer import TextTokenizer
from difftransformer.errors import DataError

BLOCK_CHARACTERS = 1 << 18

Encoded = list[NDArray[np.uint32]]
Submit = Callable[[list[str]], Callable[[], Encoded]]


@contextmanager
def encoders(tokenizer: Path, workers: int, max_document_tokens: int | None) -> Iterator[Submit]:
    """Give a function that starts encoding texts and returns a function that waits for them.

    One worker encodes in this process; more are processes of their own, which end with this one
    even when it is killed.
    """
    # The tokenizers library would start threads of its own in every process.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if workers == 1:
        here = TextTokenizer(tokenizer)
        yield lambda texts: lambda: here.encode(texts, max_document_tokens)
        return
    with ProcessPoolExecutor(
        workers, get_context("spawn"), _start_worker, (tokenizer, max_document_tokens)
    ) as pool:
        try:
            yield lambda texts: pool.submit(_encode, texts).result
        except BrokenProcessPool:
            raise DataError(
                "a tokenising process died, most likely for want of memory: use fewer workers"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def encode_documents(
    documents: Iterable[Document], submit: Submit, blocks_ahead: int
) -> Iterator[TokenisedDocument]:
    """Documents with their tokens, in order, with at most `blocks_ahead` blocks being encoded."""
    waiting: deque[tuple[list[Document], Callable[[], Encoded]]] = deque()
    for block in _blocks(documents):
        waiting.append((block, submit([document.text for document in block])))
        if len(waiting) >= blocks_ahead:
            yield from _collect(*waiting.popleft())
    while waiting:
        yield from _collect(*waiting.popleft())


def _collect(block: list[Document], wait: Callable[[], Encoded]) -> Iterator[TokenisedDocument]:
    for document, tokens in zip(block, wait(), strict=True):
        yield TokenisedDocument(tokens, document.licence, document.cursor)


def _blocks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    block, characters = [], 0
    for document in documents:
        block.append(document)
        characters += len(document.text)
        if characters >= BLOCK_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


class _Worker:
    """State of a worker process, set once by `_start_worker`."""

    tokenizer: TextTokenizer
    max_document_tokens: int | None


def _start_worker(tokenizer: Path, max_document_tokens: int | None) -> None:
    _Worker.tokenizer = TextTokenizer(tokenizer)
    _Worker.max_document_tokens = max_document_tokens
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End when the parent is killed: waiting on a pipe it also holds open, a worker never would."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _encode(texts: list[str]) -> Encoded:
    return _Worker.tokenizer.encode(texts, _Worker.max_document_tokens)
