"""Encoding on several processes, in order, with a bounded amount of text in flight."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from difftransformer.data.documents import Document
from difftransformer.data.mixture import TokenisedDocument
from difftransformer.data.tokenizer import TextTokenizer
from difftransformer.errors import DataError
from difftransformer.machine import slurm
from difftransformer.machine.fresh import end_with_parent

BLOCK_CHARACTERS = 1 << 18

Encoded = list[NDArray[np.uint32]]
Submit = Callable[[list[str], int | None], Callable[[], Encoded]]


@contextmanager
def encoders(tokenizer: Path, workers: int) -> Iterator[Submit]:
    """Give a function that starts encoding texts and returns a function that waits for them.

    It takes the texts and the number of tokens at which each is cut, or None.
    One worker encodes in this process; more are processes of their own, which end with this one
    even when it is killed.
    """
    # The tokenizers library would start threads of its own in every process.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if workers == 1:
        here = TextTokenizer(tokenizer)
        yield lambda texts, longest: lambda: here.encode(texts, longest)
        return
    with slurm.unheard():
        executor = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (tokenizer,))
    with executor as pool:

        def submit(texts: list[str], longest: int | None) -> Callable[[], Encoded]:
            with slurm.unheard():  # it starts a worker where there is need
                return pool.submit(_encode, texts, longest).result

        try:
            yield submit
        except BrokenProcessPool:
            raise DataError(
                "a tokenising process died, most likely for want of memory: use fewer workers"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def encode_documents(
    documents: Iterable[Document], submit: Submit, blocks_ahead: int, longest: int | None
) -> Iterator[TokenisedDocument]:
    """Documents with their tokens, at most `longest`, in order, with at most `blocks_ahead` blocks
    being encoded.
    """
    waiting: deque[tuple[list[Document], Callable[[], Encoded]]] = deque()
    for block in _blocks(documents):
        waiting.append((block, submit([document.text for document in block], longest)))
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


def _start_worker(tokenizer: Path) -> None:
    _Worker.tokenizer = TextTokenizer(tokenizer)
    end_with_parent()  # it holds the pipe open that it waits on


def _encode(texts: list[str], longest: int | None) -> Encoded:
    return _Worker.tokenizer.encode(texts, longest)
