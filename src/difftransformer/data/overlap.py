"""Train/test overlap and deduplication of the validation split.

A validation token overlaps if it is in an n-gram of its document that the training text contains
verbatim. The count is exact up to collisions of 64-bit keys (see ngrams). Memory grows with the
validation text only: its keys are in memory, and training is streamed. A training n-gram across two
documents contains an end-of-text token, which is only at the end of a validation document.
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
    """Return the tokens and offsets of a shard in the state folder."""
    assert entry.offsets_file is not None
    tokens = np.memmap(folder / entry.file, np.dtype(dtype).newbyteorder("<"), mode="r")
    return tokens, np.load(folder / entry.offsets_file, allow_pickle=False)


def drop_overlapping(
    held_out: Sequence[MixedDocument],
    training: Sequence[Shard],
    dataset: DatasetConfig,
    vocab_size: int,
) -> tuple[list[MixedDocument], TrainTestOverlap]:
    """Return the validation documents to keep, and their overlap with the training text.

    The dataset's settings decide which documents are dropped. Near-duplicates are dropped first,
    then the documents with the largest shares of overlapping tokens until the share of all is at
    most ``max_overlap``.

    Raises:
        DataError: No document is left.
    """
    assert held_out
    texts = [document.tokens for document in held_out]
    shared = shared_ngrams(texts, training, N, vocab_size)
    overlapping = np.array([overlapping_tokens(tokens, shared, N, vocab_size) for tokens in texts])
    lengths = np.array([len(tokens) for tokens in texts])
    duplicates = find_near_duplicates(texts, training, dataset, vocab_size)
    unique = np.flatnonzero(~duplicates)
    clean = unique[largest_subset_within(overlapping[unique], lengths[unique], dataset.max_overlap)]
    if not len(clean):
        raise DataError(_empty_validation(dataset, lengths, training))

    def dropped(indices: NDArray[np.intp]) -> Dropped:
        return Dropped(documents=len(indices), tokens=int(lengths[indices].sum()))

    overlap = TrainTestOverlap(
        n=N,
        share=float(overlapping[clean].sum() / lengths[clean].sum()),
        share_before_dropping=float(overlapping.sum() / lengths.sum()),
        near_duplicates=dropped(np.flatnonzero(duplicates)),
        overlapping=dropped(np.setdiff1d(unique, clean)),
    )
    _log.info(
        "validation: %.2f%% of its tokens are in %d-grams of training, %.2f%% before %d documents "
        "(%d tokens) were dropped as near-duplicates and %d (%d tokens) for their overlap",
        *(100 * overlap.share, N, 100 * overlap.share_before_dropping),
        *(overlap.near_duplicates.documents, overlap.near_duplicates.tokens),
        *(overlap.overlapping.documents, overlap.overlapping.tokens),
    )
    return [held_out[index] for index in clean], overlap


def _empty_validation(
    dataset: DatasetConfig, lengths: NDArray[np.integer], training: Sequence[Shard]
) -> str:
    """Return the error message for a validation split without documents."""
    files = [source for source in dataset.sources.values() if isinstance(source, FilesSource)]
    globs = list(chain.from_iterable([*source.globs, *source.validation] for source in files))
    named = f" ({', '.join(globs)})" if globs else ""
    total = int(lengths.sum()) + sum(len(tokens) for tokens, _ in training)
    trained = sum(len(ends) for _, ends in training)
    return (
        f"sources {', '.join(dataset.sources)}{named}: {len(lengths) + trained} documents with "
        f"{total} tokens are too few or too similar: none of {len(lengths)} held-out ones is "
        f"left, since they repeat others (near_duplicates {dataset.near_duplicates}, max_overlap "
        f"{dataset.max_overlap}): add text, hold out more (validation_share "
        f"{dataset.validation_share:g}), or raise near_duplicates or max_overlap"
    )


def shared_ngrams(
    texts: Iterable[NDArray[np.integer]], training: Iterable[Shard], n: int, vocab_size: int
) -> Keys:
    """Return the sorted keys of the n-grams in ``texts`` that also occur in the training text."""
    keys_by_text = [ngram_keys(tokens, n, vocab_size) for tokens in texts if len(tokens) >= n]
    candidates = np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *keys_by_text]))
    shared = np.zeros(len(candidates), dtype=np.bool_)
    for tokens, _ in training:
        for start in range(0, max(0, len(tokens) - n + 1), _CHUNK):
            keys = ngram_keys(tokens[start : start + _CHUNK + n - 1], n, vocab_size)
            shared[np.searchsorted(candidates, keys[contains(candidates, keys)])] = True
    return candidates[shared]


def overlapping_tokens(tokens: NDArray[np.integer], shared: Keys, n: int, vocab_size: int) -> int:
    """Return the number of tokens that are in at least one n-gram of ``shared``."""
    if len(tokens) < n:
        return 0
    starts = contains(shared, ngram_keys(tokens, n, vocab_size))
    return int(np.count_nonzero(np.convolve(starts, np.ones(n))))


def largest_subset_within(
    overlapping: NDArray[np.integer], lengths: NDArray[np.integer], max_share: float | None
) -> NDArray[np.intp]:
    """Return the indices of the documents to keep so that their overlap is at most ``max_share``.

    The indices are ascending. The overlap is the share of overlapping tokens in all tokens kept.
    Documents with the largest shares of overlapping tokens are dropped first.
    """
    if max_share is None:
        return np.arange(len(lengths))
    order = np.argsort(overlapping / lengths, kind="stable")
    within = np.cumsum(overlapping[order]) <= max_share * np.cumsum(lengths[order])
    return np.sort(order[within])


def find_near_duplicates(
    texts: Sequence[NDArray[np.integer]],
    training: Iterable[Shard],
    dataset: DatasetConfig,
    vocab_size: int,
) -> NDArray[np.bool_]:
    """Return, for each text, whether it is a near-duplicate.

    A near-duplicate resembles an earlier text or a training document: the estimated Jaccard
    similarity of their 5-grams is at least the setting ``near_duplicates``.
    """
    duplicates = np.zeros(len(texts), dtype=np.bool_)
    if (threshold := dataset.near_duplicates) is None:
        return duplicates
    from datasketch import MinHash, MinHashLSH

    def sketch(tokens: NDArray[np.integer]) -> MinHash:
        keys = ngram_keys(tokens, min(_SHINGLE, len(tokens)), vocab_size)
        minhash = MinHash(hashfunc=int, scheme="affine32")
        minhash.update_batch(np.unique(hash_to_bin(keys, 1 << 32)).tolist())
        return minhash

    sketches = [sketch(tokens) for tokens in texts]
    index = MinHashLSH(threshold=threshold)

    def similar(minhash: MinHash) -> list[int]:
        return [i for i in index.query(minhash) if minhash.jaccard(sketches[i]) >= threshold]

    for number, minhash in enumerate(sketches):
        if similar(minhash):
            duplicates[number] = True
        else:
            index.insert(number, minhash)
    for tokens in _documents(training, dataset.longest_held_out):
        duplicates[similar(sketch(tokens))] = True
    return duplicates


def _documents(training: Iterable[Shard], longest: int | None) -> Iterator[NDArray[np.integer]]:
    """Yield the training documents, truncated to a length."""
    for tokens, ends in training:
        start = 0
        for end in ends.tolist():
            yield tokens[start:end][:longest]
            start = end
