"""Frequent n-grams of the training text, and their 64-bit keys.

The key of an n-gram is its number to the base of the vocabulary, exact while vocab_size^n < 2^64;
beyond that the same polynomial modulo 2^64 with an odd base, scrambled: a 64-bit hash, in which two
n-grams of a corpus with 10^9 different ones collide with a probability of about 3%.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from difftransformer.data.packed import PackedDataset, PackedSplit
from difftransformer.errors import DataError
from difftransformer.provenance import atomic
from difftransformer.provenance.checksums import write_checked
from difftransformer.provenance.layout import SUMS

_CHUNK = 1 << 20
_BINS = 1 << 24
_ODD_BASE = np.uint64(0x9E3779B97F4A7C15)

Keys = NDArray[np.uint64]


def ngram_keys(tokens: NDArray[np.integer], n: int, vocab_size: int) -> Keys:
    """Return the 64-bit keys of all n-grams along the last axis.

    Args:
        tokens: Token ids, [.., T] with T >= n.
        n: Length of the n-grams.
        vocab_size: Size of the vocabulary.

    Returns:
        Keys, uint64 [.., T - n + 1]; entry t is of tokens t .. t + n - 1.
    """
    exact = vocab_size**n < 2**64
    base = np.uint64(vocab_size) if exact else _ODD_BASE
    ids = tokens.astype(np.uint64)
    length = ids.shape[-1] - n + 1
    keys = np.zeros((*ids.shape[:-1], length), dtype=np.uint64)
    for shift in range(n):
        keys = keys * base + ids[..., shift : shift + length]
    return keys if exact else keys ^ (keys >> np.uint64(32))


def contains(frequent: Keys, keys: Keys) -> NDArray[np.bool_]:
    """Return, for each key, whether it is among the sorted keys ``frequent``; shape as ``keys``."""
    if len(frequent) == 0:
        return np.zeros(keys.shape, dtype=np.bool_)
    indices = np.minimum(np.searchsorted(frequent, keys), len(frequent) - 1)
    return np.asarray(frequent[indices] == keys)


def hash_to_bin(keys: Keys, bins: int) -> NDArray[np.int64]:
    """Return the hash bins of keys, numbers below ``bins``, a power of two; shape as ``keys``."""
    shift = np.uint64(64 - (bins.bit_length() - 1))
    return ((keys * _ODD_BASE) >> shift).astype(np.int64)


def count_ngrams(dataset: Path, output: Path, n: int, max_count: int) -> None:
    """Write the keys of the n-grams that occur more than ``max_count`` times in training text.

    Two passes in constant memory: the first counts keys in bins, the second counts exactly the keys
    of bins above the limit, which contain every frequent key. N-grams of running text may span
    documents (as the model reads it), those of rows do not span rows.

    The output is a .npy file of sorted uint64 keys, see `ngram_keys`.

    Raises:
        DataError: The dataset is damaged, or n is not in 2 to the length of the text.
    """
    opened = PackedDataset.open(dataset)
    split = opened.split("train")
    vocab_size = opened.manifest.vocab_size
    longest = split.row_length or len(split.tokens)
    if not 2 <= n <= longest:
        raise DataError(f"{dataset}: n-grams of {n} tokens; n must be 2 to {longest}")
    bins = np.zeros(min(_BINS, 1 << len(split.tokens).bit_length()), dtype=np.int64)
    for keys in _chunks(split, n, vocab_size):
        bins += np.bincount(hash_to_bin(keys, len(bins)), minlength=len(bins))
    likely = bins > max_count
    unique, counts = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    for keys in _chunks(split, n, vocab_size):
        new, times = np.unique(keys[likely[hash_to_bin(keys, len(bins))]], return_counts=True)
        unique, indices = np.unique(np.concatenate((unique, new)), return_inverse=True)
        sums = np.zeros(len(unique), dtype=np.int64)
        np.add.at(sums, indices, np.concatenate((counts, times)))
        counts = sums
    write_keys(output, unique[counts > max_count])


def write_keys(output: Path, keys: Keys) -> None:
    """Write n-gram keys to a file atomically, with the SHA-256 in a file next to it."""
    with atomic.replacing(output) as aside:
        np.save(aside, keys, allow_pickle=False)
    write_checked(output.with_suffix(SUMS), {}, [output])


def _chunks(split: PackedSplit, n: int, vocab_size: int) -> Iterator[Keys]:
    """Yield the keys of the n-grams that start in each chunk, flat."""
    length = split.row_length
    for start in range(0, len(split.tokens), _CHUNK):
        if length is not None:
            first, last = (-(-at // length) * length for at in (start, start + _CHUNK))
            rows = split.tokens[first:last].reshape(-1, length)
            yield ngram_keys(rows, n, vocab_size).reshape(-1)
        elif len(tokens := split.tokens[start : start + _CHUNK + n - 1]) >= n:
            yield ngram_keys(tokens, n, vocab_size)
