"""The text that a byte-pair encoding is learned from, drawn from the training split."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from difftransformer.config.data import DatasetConfig
from difftransformer.data.documents import Source, documents
from difftransformer.data.mixture import Mixture
from difftransformer.data.sources import open_sources

_FEWEST, _MOST = 10, 1000
"""A document has its part of a sample among all of them, or among so many."""
_log = logging.getLogger(__name__)


def bpe_sample(dataset: DatasetConfig, budget: int) -> Iterator[str]:
    """Yield texts of the training split, mixed by the weights in bytes, up to a budget of bytes.

    Where the split fits the budget that is all of it. Otherwise files are sampled over all of their
    documents, with a cap of bytes for each, so that neither a large first file nor a long document
    fills the sample. Other sources are read from the beginning: their order is drawn already, or
    they are without end, or on the hub.
    """
    sources = list(open_sources(dataset).values())
    weights, share = [source.weight for source in sources], dataset.validation_share
    sizes = [_sizes(source, share) if source.sorted_by_name else None for source in sources]
    totals = [inf if one is None else float(one.sum()) for one in sizes]
    rooms = [round(part) for part in divide_budget(totals, weights, budget)]
    streams = [_texts(source, share) for source in sources]
    if all(known is None or known.sum() <= room for known, room in zip(sizes, rooms, strict=True)):
        rooms = [budget] * len(sources)
    for number, known in enumerate(sizes):
        if known is not None and known.sum() > rooms[number]:
            streams[number] = _drawn(streams[number], known, rooms[number])
    mixture = Mixture(weights)
    while sum(mixture.taken) < budget and (choice := mixture.choose()) is not None:
        room = min(budget - sum(mixture.taken), rooms[choice] - mixture.taken[choice])
        if room <= 0 or (text := next(streams[choice], None)) is None:
            mixture.exhausted[choice] = True
            continue
        mixture.taken[choice] += len(text[:room])
        yield text[:room].decode("utf-8", "ignore")


def divide_budget(totals: Sequence[float], weights: Sequence[float], budget: float) -> list[float]:
    """Divide a budget by weights; what a source is too small for goes to the others."""
    found = dict.fromkeys(range(len(totals)), 0.0)
    active = set(found)
    while active:
        unit = max(budget, 0.0) / sum(weights[number] for number in active)
        short = {number for number in active if totals[number] <= unit * weights[number]}
        for number in short or active:
            found[number] = min(totals[number], unit * weights[number])
            budget -= found[number]
        active = active - short if short else set()
    return list(found.values())


def _texts(source: Source, validation_share: float) -> Iterator[bytes]:
    for document in documents(source, "train", validation_share):
        yield document.text.encode("utf-8", "replace")


def _sizes(source: Source, validation_share: float) -> NDArray[np.int64]:
    return np.fromiter((len(text) for text in _texts(source, validation_share)), dtype=np.int64)


def _drawn(texts: Iterable[bytes], sizes: NDArray[np.int64], budget: int) -> Iterator[bytes]:
    """Yield evenly spaced texts, each up to a cap, that have the bytes of the budget together.

    They have less where most documents are shorter than their parts, but at least a tenth: what is
    left is not given to the long ones, which would fill the sample. Where half of the documents are
    longer than an equal part, all have that, so that a single one is the whole sample.
    """
    equal = budget // min(max(len(sizes), _FEWEST), _MOST)
    usual = min(budget // len(sizes), int(np.sort(sizes)[(len(sizes) - 1) // 2]))
    cap = max(equal, usual, _level(sizes, budget // _FEWEST), 1)
    taken = min(1.0, budget / int(np.minimum(sizes, cap).sum()))
    _log.info(
        "tokenizer: learns from some %d of %d bytes: %.3g%% of the documents, each up to %d bytes",
        *(round(taken * int(np.minimum(sizes, cap).sum())), int(sizes.sum()), 100 * taken, cap),
    )
    for number, text in enumerate(texts):
        if int((number + 1) * taken) > int(number * taken):
            yield text[:cap]


def _level(sizes: NDArray[np.int64], budget: int) -> int:
    """Return the cap at which all documents have the bytes of the budget together."""
    ascending = np.sort(sizes)
    below = np.concatenate(([0], np.cumsum(ascending)))[:-1]
    # With a cap of a document's size the shorter ones are whole, and it and the longer ones capped.
    reached = below + ascending * np.arange(len(sizes), 0, -1)
    place = int(np.searchsorted(reached, budget))
    return (budget - int(below[place])) // (len(sizes) - place) if place < len(sizes) else 0
