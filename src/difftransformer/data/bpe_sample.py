"""The sample of the training split from which a byte-pair encoding (BPE) is learned."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from difftransformer.config.data import DatasetConfig
from difftransformer.data.documents import Source, documents
from difftransformer.data.mixture import Mixture
from difftransformer.data.sources import open_sources

_MIN_PARTS, _MAX_PARTS = 10, 1000
"""A document's cap is the budget divided by the number of documents, within these bounds."""
_log = logging.getLogger(__name__)


def bpe_sample(dataset: DatasetConfig, budget: int) -> Iterator[str]:
    """Yield texts of the training split up to ``budget`` bytes, mixed by the sources' weights.

    A split within the budget is yielded completely. Otherwise files are sampled over all documents
    with a cap per document, so that neither a large first file nor a long document dominates. Other
    sources are read from the start: their order is random, or they are endless or on the hub.
    """
    sources = list(open_sources(dataset).values())
    weights, share = [source.weight for source in sources], dataset.validation_share
    sizes = [_sizes(source, share) if source.sorted_by_name else None for source in sources]
    totals = [inf if lengths is None else float(lengths.sum()) for lengths in sizes]
    budgets = [round(part) for part in divide_budget(totals, weights, budget)]
    streams = [_texts(source, share) for source in sources]
    if all(
        lengths is None or lengths.sum() <= limit
        for lengths, limit in zip(sizes, budgets, strict=True)
    ):
        budgets = [budget] * len(sources)
    for number, lengths in enumerate(sizes):
        if lengths is not None and lengths.sum() > budgets[number]:
            streams[number] = _sample(streams[number], lengths, budgets[number])
    mixture = Mixture(weights)
    while sum(mixture.consumed) < budget and (choice := mixture.choose()) is not None:
        room = min(budget - sum(mixture.consumed), budgets[choice] - mixture.consumed[choice])
        if room <= 0 or (text := next(streams[choice], None)) is None:
            mixture.exhausted[choice] = True
            continue
        mixture.consumed[choice] += len(text[:room])
        yield text[:room].decode("utf-8", "ignore")


def divide_budget(totals: Sequence[float], weights: Sequence[float], budget: float) -> list[float]:
    """Return each source's part of ``budget``, in proportion to the weights.

    A part larger than the source's size in ``totals`` is cut, and the rest goes to the others.
    """
    shares = dict.fromkeys(range(len(totals)), 0.0)
    active = set(shares)
    while active:
        unit = max(budget, 0.0) / sum(weights[number] for number in active)
        short = {number for number in active if totals[number] <= unit * weights[number]}
        for number in short or active:
            shares[number] = min(totals[number], unit * weights[number])
            budget -= shares[number]
        active = active - short if short else set()
    return list(shares.values())


def _texts(source: Source, validation_share: float) -> Iterator[bytes]:
    for document in documents(source, "train", validation_share):
        yield document.text.encode("utf-8", "replace")


def _sizes(source: Source, validation_share: float) -> NDArray[np.int64]:
    return np.fromiter((len(text) for text in _texts(source, validation_share)), dtype=np.int64)


def _sample(texts: Iterable[bytes], sizes: NDArray[np.int64], budget: int) -> Iterator[bytes]:
    """Yield evenly spaced texts, each up to a cap, with the budget's bytes together.

    Where most documents are shorter than an equal part the total is less, but at least a tenth of
    the budget: the rest is not given to long documents, which would dominate. Where half of the
    documents are longer than an equal part, that is the cap.
    """
    equal = budget // min(max(len(sizes), _MIN_PARTS), _MAX_PARTS)
    median_size = min(budget // len(sizes), int(np.sort(sizes)[(len(sizes) - 1) // 2]))
    cap = max(equal, median_size, _level(sizes, budget // _MIN_PARTS), 1)
    fraction = min(1.0, budget / int(np.minimum(sizes, cap).sum()))
    _log.info(
        "tokenizer: learns from about %d of %d bytes: %.3g%% of the documents, each up to %d bytes",
        *(
            round(fraction * int(np.minimum(sizes, cap).sum())),
            int(sizes.sum()),
            100 * fraction,
            cap,
        ),
    )
    for number, text in enumerate(texts):
        if int((number + 1) * fraction) > int(number * fraction):
            yield text[:cap]


def _level(sizes: NDArray[np.int64], budget: int) -> int:
    """Return the cap at which all documents together have the budget's bytes."""
    ascending = np.sort(sizes)
    below = np.concatenate(([0], np.cumsum(ascending)))[:-1]
    # A cap of a document's size leaves shorter ones uncut and caps it and the longer ones.
    reached = below + ascending * np.arange(len(sizes), 0, -1)
    index = int(np.searchsorted(reached, budget))
    return (budget - int(below[index])) // (len(sizes) - index) if index < len(sizes) else 0
