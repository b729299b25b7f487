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

from difftransformer.data.mixture import TokenisedDocument
from difftransformer.data.tokenizer import TextTokenizer, Windows
from difftransformer.data.windows import Excerpt
from difftransformer.errors import DataError
from difftransformer.machine import slurm
from difftransformer.machine.child_process import end_with_parent

BLOCK_CHARACTERS = 1 << 18

Encoded = list[Windows]
Submit = Callable[[list[Excerpt], int | None], Callable[[], Encoded]]


@contextmanager
def encoders(tokenizer: Path, workers: int) -> Iterator[Submit]:
    """Give a function that starts encoding excerpts and returns a function that waits for them.

    It takes the excerpts and the number of tokens of a window, or None.
    One worker encodes in this process; more are processes of their own, which end with this one
    even when it is killed.
    """
    # The tokenizers library would start threads of its own in every process.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if workers == 1:
        here = TextTokenizer(tokenizer)
        yield lambda block, longest: lambda: _encode_all(here, *_pairs(block), longest)
        return
    with slurm.unheard():
        executor = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (tokenizer,))
    with executor as pool:

        def submit(block: list[Excerpt], longest: int | None) -> Callable[[], Encoded]:
            with slurm.unheard():  # it starts a worker where there is need
                return pool.submit(_encode, *_pairs(block), longest).result

        try:
            yield submit
        except BrokenProcessPool:
            raise DataError(
                "a tokenising process died, most likely for want of memory: use fewer workers"
            ) from None
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


def _pairs(block: list[Excerpt]) -> tuple[list[str], list[range]]:
    return [one.document.text for one in block], [one.windows for one in block]


class _Worker:
    """State of a worker process, set once by `_start_worker`."""

    tokenizer: TextTokenizer


def _start_worker(tokenizer: Path) -> None:
    _Worker.tokenizer = TextTokenizer(tokenizer)
    end_with_parent()  # it holds the pipe open that it waits on


def _encode(texts: list[str], wanted: list[range], longest: int | None) -> Encoded:
    return _encode_all(_Worker.tokenizer, texts, wanted, longest)


def _encode_all(
    tokenizer: TextTokenizer, texts: list[str], wanted: list[range], longest: int | None
) -> Encoded:
    pairs = zip(texts, wanted, strict=True)
    return [tokenizer.windows(text, longest, windows) for text, windows in pairs]
