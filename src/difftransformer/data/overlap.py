"""Held-out text that training holds as well: how much of it there is, and what is left out for it.

A token leaks if it lies in an n-gram of its document that training holds verbatim. That is counted
exactly (but for collisions of 64-bit keys, see ngrams): the keys of the held-out text are in memory
and training is read past them, so memory grows with the held-out text alone. An n-gram of training
across two documents holds an end-of-text token, which no n-gram before the end of a document does.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from difftransformer.config.data import DatasetConfig, FilesSource
from difftransformer.data.mixture import MixedDocument
from difftransformer.data.ngrams import Keys, contains, hash_to_bin, ngram_keys
from difftransformer.data.packed import Dropped, ShardEntry, TrainTestOverlap
from difftransformer.errors import DataError

N = 32
_SHINGLE = 5
_CHUNK = 1 << 20
_log = logging.getLogger(__name__)

Shard = tuple[NDArray[np.integer], NDArray[np.int64]]
"""Tokens of a shard and the end offsets of its documents."""


def read_shard(folder: Path, entry: ShardEntry, dtype: str) -> Shard:
    """Open a shard of text that was just written."""
    assert entry.offsets_file is not None
    tokens = np.memmap(folder / entry.file, np.dtype(dtype).newbyteorder("<"), mode="r")
    return tokens, np.load(folder / entry.offsets_file, allow_pickle=False)


def drop_overlapping(
    held_out: Sequence[MixedDocument],
    training: Sequence[Shard],
    dataset: DatasetConfig,
    vocab_size: int,
) -> tuple[list[MixedDocument], TrainTestOverlap]:
    """Drop held-out documents as the dataset asks, and say how much leaks before and after.

    Near-duplicates go first, then the documents with the largest shares of leaking tokens until the
    share of all is ``max_overlap``.

    Raises:
        DataError: Nothing is left.
    """
    assert held_out
    texts = [document.tokens for document in held_out]
    seen = shared_ngrams(texts, training, N, vocab_size)
    overlapping = np.array([overlapping_tokens(tokens, seen, N, vocab_size) for tokens in texts])
    lengths = np.array([len(tokens) for tokens in texts])
    copies = find_near_duplicates(texts, training, dataset, vocab_size)
    unique = np.flatnonzero(~copies)
    clean = unique[largest_subset_within(overlapping[unique], lengths[unique], dataset.max_overlap)]
    if not len(clean):
        raise DataError(_nothing_left(dataset, lengths, training))

    def dropped(places: NDArray[np.intp]) -> Dropped:
        return Dropped(documents=len(places), tokens=int(lengths[places].sum()))

    overlap = TrainTestOverlap(
        n=N,
        share=float(overlapping[clean].sum() / lengths[clean].sum()),
        share_before_dropping=float(overlapping.sum() / lengths.sum()),
        near_duplicates=dropped(np.flatnonzero(copies)),
        overlapping=dropped(np.setdiff1d(unique, clean)),
    )
    _log.info(
        "validation: %.2f%% of its tokens lie in %d-grams of training, %.2f%% before %d documents "
        "(%d tokens) were dropped as near-duplicates and %d (%d tokens) as leaking",
        *(100 * overlap.share, N, 100 * overlap.share_before_dropping),
        *(overlap.near_duplicates.documents, overlap.near_duplicates.tokens),
        *(overlap.overlapping.documents, overlap.overlapping.tokens),
    )
    return [held_out[place] for place in clean], overlap


def _nothing_left(
    dataset: DatasetConfig, lengths: NDArray[np.integer], training: Sequence[Shard]
) -> str:
    """Say how much text there is, what of it is held out and why nothing of that is left."""
    files = [one for one in dataset.sources.values() if isinstance(one, FilesSource)]
    globs = list(chain.from_iterable([*one.globs, *one.validation] for one in files))
    named = f" ({', '.join(globs)})" if globs else ""
    total = int(lengths.sum()) + sum(len(tokens) for tokens, _ in training)
    trained = sum(len(ends) for _, ends in training)
    return (
        f"sources {', '.join(dataset.sources)}{named}: {len(lengths) + trained} documents with "
        f"{total} tokens are too little or too alike: none of {len(lengths)} held-out ones is "
        f"left, for they repeat others (near_duplicates {dataset.near_duplicates}, max_overlap "
        f"{dataset.max_overlap}): add text, hold out more (validation_share "
        f"{dataset.validation_share:g}), or raise near_duplicates or max_overlap"
    )


def shared_ngrams(
    texts: Iterable[NDArray[np.integer]], training: Iterable[Shard], n: int, vocab_size: int
) -> Keys:
    """Sorted keys of the n-grams of some texts that training holds."""
    own = [ngram_keys(tokens, n, vocab_size) for tokens in texts if len(tokens) >= n]
    wanted = np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *own]))
    found = np.zeros(len(wanted), dtype=np.bool_)
    for tokens, _ in training:
        for start in range(0, max(0, len(tokens) - n + 1), _CHUNK):
            keys = ngram_keys(tokens[start : start + _CHUNK + n - 1], n, vocab_size)
            found[np.searchsorted(wanted, keys[contains(wanted, keys)])] = True
    return wanted[found]


def overlapping_tokens(tokens: NDArray[np.integer], seen: Keys, n: int, vocab_size: int) -> int:
    """Tokens of a document that lie in at least one n-gram of `seen`."""
    if len(tokens) < n:
        return 0
    starts = contains(seen, ngram_keys(tokens, n, vocab_size))
    return int(np.count_nonzero(np.convolve(starts, np.ones(n))))


def largest_subset_within(
    overlapping: NDArray[np.integer], lengths: NDArray[np.integer], most: float | None
) -> NDArray[np.intp]:
    """Places, ascending, of the most documents whose leaking tokens are a share of at most `most`.

    Those that leak most, by their own shares, are left out first.
    """
    if most is None:
        return np.arange(len(lengths))
    order = np.argsort(overlapping / lengths, kind="stable")
    kept = np.cumsum(overlapping[order]) <= most * np.cumsum(lengths[order])
    return np.sort(order[kept])


def find_near_duplicates(
    texts: Sequence[NDArray[np.integer]],
    training: Iterable[Shard],
    dataset: DatasetConfig,
    vocab_size: int,
) -> NDArray[np.bool_]:
    """Whether each text is a near-duplicate of an earlier one or of a training document, as the
    dataset defines it.
    """
    copies = np.zeros(len(texts), dtype=np.bool_)
    if (threshold := dataset.near_duplicates) is None:
        return copies
    from datasketch import MinHash, MinHashLSH

    def sketch(tokens: NDArray[np.integer]) -> MinHash:
        keys = ngram_keys(tokens, min(_SHINGLE, len(tokens)), vocab_size)
        made = MinHash(hashfunc=int, scheme="affine32")
        made.update_batch(np.unique(hash_to_bin(keys, 1 << 32)).tolist())
        return made

    sketches = [sketch(tokens) for tokens in texts]
    index = MinHashLSH(threshold=threshold)

    def alike(one: MinHash) -> list[int]:
        return [place for place in index.query(one) if one.jaccard(sketches[place]) >= threshold]

    for place, one in enumerate(sketches):
        if alike(one):
            copies[place] = True
        else:
            index.insert(place, one)
    for tokens in _documents(training, dataset.longest_held_out):
        copies[alike(sketch(tokens))] = True
    return copies


def _documents(training: Iterable[Shard], longest: int | None) -> Iterator[NDArray[np.integer]]:
    """Training documents one after the other, each up to a length."""
    for tokens, ends in training:
        start = 0
        for end in ends.tolist():
            yield tokens[start:end][:longest]
            start = end
