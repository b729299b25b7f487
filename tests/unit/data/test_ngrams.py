"""Counting frequent n-grams of a packed dataset."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from difftransformer.data import ngrams
from difftransformer.data.ngrams import contains, count_ngrams, ngram_keys
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import DataError

Pack = Callable[..., PackedDataset]


def counted(tokens: list[int], n: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(tokens[t : t + n]) for t in range(len(tokens) - n + 1))


@pytest.mark.parametrize(
    ("n", "max_count", "chunk"),
    [(2, 20, 1000), (3, 5, 4096), (8, 2, 4096), (2, 10**6, 1 << 20), (2, 0, 1 << 20)],
)
def test_frequent_ngrams_are_those_counted_naively(
    n: int,
    max_count: int,
    chunk: int,
    stdlib: PackedDataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ngrams, "_CHUNK", chunk)
    monkeypatch.setattr(ngrams, "_BINS", 1 << 10)
    count_ngrams(stdlib.folder, tmp_path / "n.npy", n, max_count)
    frequent = np.load(tmp_path / "n.npy")
    assert frequent.dtype == np.uint64 and np.array_equal(frequent, np.unique(frequent))
    tokens = stdlib.split("train").tokens[:]
    expected = {gram for gram, times in counted(tokens.tolist(), n).items() if times > max_count}
    assert len(frequent) == len(expected)
    is_frequent = contains(frequent, ngram_keys(tokens, n, 512))
    sample = range(0, len(tokens) - n + 1, 7)
    assert all(is_frequent[t] == (tuple(tokens[t : t + n].tolist()) in expected) for t in sample)


def test_keys_are_exact_numbers_and_keep_leading_shape() -> None:
    tokens = np.array([[3, 1, 2, 0], [0, 0, 0, 3]], dtype=np.uint16)
    assert ngram_keys(tokens, 2, 4).tolist() == [[13, 6, 8], [0, 0, 3]]
    assert ngram_keys(tokens, 4, 4).tolist() == [[216], [3]]


def test_keys_too_large_for_64_bits_are_hashed_without_collisions_here() -> None:
    tokens = np.random.default_rng(0).integers(0, 100_277, size=200_000)
    assert 100_277**4 > 2**64
    assert len(np.unique(ngram_keys(tokens, 4, 100_277))) == 200_000 - 3
    swapped = ngram_keys(np.array([[1, 2, 3, 4], [2, 1, 3, 4]]), 4, 100_277)
    assert swapped[0] != swapped[1]


@pytest.mark.parametrize("chunk", [100, 1 << 20])
def test_ngrams_of_rows_do_not_cross_rows(
    chunk: int, pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ngrams, "_CHUNK", chunk)
    rows = pack(
        sources={"rows": {"kind": "builtin", "name": "recall"}},
        tokenizer={"kind": "none"},
        recall={},
        tokens=64 * 300,
    )
    count_ngrams(rows.folder, tmp_path / "n.npy", 2, 3)
    table = rows.split("train").tokens[:].reshape(-1, 65)
    total = Counter(gram for row in table.tolist() for gram in counted(row, 2).elements())
    expected = sorted(a * 128 + b for (a, b), times in total.items() if times > 3)
    assert np.load(tmp_path / "n.npy").tolist() == expected


def test_lookups_without_frequent_ngrams() -> None:
    empty = np.empty(0, dtype=np.uint64)
    assert contains(empty, np.array([[1, 2]], dtype=np.uint64)).tolist() == [[False, False]]


def test_senseless_lengths_are_refused(stdlib: PackedDataset, tmp_path: Path) -> None:
    for n in (1, 10**9):
        with pytest.raises(DataError, match=f"n-grams of {n} tokens; n must be 2 to"):
            count_ngrams(stdlib.folder, tmp_path / "n.npy", n, 1)
