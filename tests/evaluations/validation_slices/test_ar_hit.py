"""AR-Hit against a written example and a naive loop."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from difftransformer.data.ngrams import ngram_keys
from difftransformer.errors import DataError
from difftransformer.evaluations.validation_slices.measure import ar_hits, load_frequent
from difftransformer.provenance.checksums import write_checked
from difftransformer.provenance.layout import SUMS

NONE = np.empty(0, dtype=np.uint64)


def naive(window: list[int], frequent: set[tuple[int, ...]], n: int) -> list[bool]:
    """Return AR-Hits by their definition."""
    hits = []
    for target in range(1, len(window)):
        context = window[:target]
        ngram = tuple(window[max(0, target + 1 - n) : target + 1])
        earlier = [tuple(context[i : i + n]) for i in range(len(context) - n + 1)]
        hits.append(len(ngram) == n and ngram in earlier and ngram not in frequent)
    return hits


def test_written_example() -> None:
    # the  cat  sat  on  the  cat ; the cat  ->  (the, cat) recurs at targets 5 and 8
    the, cat, sat, on, semicolon = range(5)
    window = np.array([[the, cat, sat, on, the, cat, semicolon, the, cat]])
    hits = ar_hits(window, NONE, n=2, vocab_size=5)
    assert hits.tolist() == [[False, False, False, False, True, False, False, True]]


@settings(max_examples=150)
@given(st.data())
def test_equals_the_naive_loop(data: st.DataObject) -> None:
    vocab_size = data.draw(st.sampled_from([2, 3, 5, 2**40]), label="vocab_size")
    n = data.draw(st.integers(2, 4), label="n")
    length = data.draw(st.integers(1, 24), label="length")
    token = st.integers(0, min(vocab_size, 5) - 1)
    row = st.lists(token, min_size=length, max_size=length)
    windows = data.draw(st.lists(row, min_size=1, max_size=4), label="windows")
    ngram = st.tuples(*[token] * n)
    frequent = data.draw(st.sets(ngram, max_size=6), label="frequent")
    listed = np.array(sorted(frequent), dtype=np.int64).reshape(-1, n)
    keys = np.unique(ngram_keys(listed, n, vocab_size).reshape(-1))
    hits = ar_hits(np.array(windows), keys, n=n, vocab_size=vocab_size)
    assert hits.tolist() == [naive(window, frequent, n) for window in windows]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "no such file"),
        (b"not an array", "not a file of frequent"),
        (np.zeros(3), "no list of uint64"),
        (np.array([3, 1], dtype=np.uint64), "not sorted"),
    ],
)
def test_damaged_file_of_frequent_ngrams(
    tmp_path: Path, content: bytes | np.ndarray | None, complaint: str
) -> None:
    path = tmp_path / "ngrams.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    if content is not None:
        write_checked(path.with_suffix(SUMS), {}, [path])
    with pytest.raises(DataError, match=complaint) as error:
        load_frequent(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
