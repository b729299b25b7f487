"""Generated rows of the recall task: needles, queries and haystack."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from difftransformer.config.generated_rows import RecallConfig
from difftransformer.data.recall import (
    RecallVocabulary,
    answer_positions,
    recall_batch,
    successor,
    training_rows,
)
from difftransformer.errors import DataError

DEFAULT = RecallConfig()
Rows = NDArray[np.int64]


def read_row(row: Rows, haystack: int) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """Needles by key and queries of a row, read off its tokens alone."""
    keys, values = RecallVocabulary.of(DEFAULT)[1:]
    needles = {int(row[t]): int(row[t + 1]) for t in range(haystack - 1) if int(row[t]) in keys}
    assert all(value in values for value in needles.values())
    queries = [(int(row[t]), int(row[t + 1])) for t in range(haystack, len(row), 2)]
    return needles, queries


@settings(max_examples=30)
@given(needles=st.integers(1, 16), queries=st.integers(1, 20), seed=st.integers(0, 999))
def test_rows_have_the_requested_number_of_needles(needles: int, queries: int, seed: int) -> None:
    tokens, positions = recall_batch(
        DEFAULT, needles=needles, queries=queries, samples=20, seed=seed
    )
    assert tokens.shape == (20, 33 + 2 * queries)
    for row in tokens.numpy():
        needle_values, query_pairs = read_row(row, 33)
        assert len(needle_values) == len(set(needle_values.values())) == needles
        assert all(needle_values[key] == value for key, value in query_pairs)
        assert np.isin(row[:33], RecallVocabulary.of(DEFAULT).fillers).sum() == 33 - 2 * needles
        assert row[1:][positions].tolist() == [value for _, value in query_pairs]


def test_training_rows_have_one_to_four_needles_uniformly() -> None:
    rows = training_rows(DEFAULT, 4000, np.random.default_rng(0))
    assert rows.shape == (4000, 65)
    counts = np.bincount([len(read_row(row, 33)[0]) for row in rows])
    assert counts[0] == 0 and len(counts) == 5
    assert counts[1:].min() > 900
    answers = rows[:, 1:][:, answer_positions(33, 16)]
    assert np.isin(answers, RecallVocabulary.of(DEFAULT).values).all()


def test_the_haystack_is_the_order_two_source() -> None:
    rows = training_rows(DEFAULT, 4000, np.random.default_rng(1))[:, :33]
    pi = successor(64)
    assert sorted(pi.tolist()) == list(range(64)) and not (pi == np.arange(64)).any()
    before, after = rows[:, :-2], rows[:, 2:]
    fillers = (before < 64) & (after < 64)
    follows = pi[np.where(fillers, before, 0)] == after
    assert follows[fillers].mean() == pytest.approx(0.8 + 0.2 / 64, abs=0.01)


def test_needle_positions_are_uniform() -> None:
    tokens, _ = recall_batch(DEFAULT, needles=2, queries=1, samples=20_000, seed=0)
    starts = ((tokens[:, :33] >= 64) & (tokens[:, :33] < 96)).sum(0)
    assert starts[32] == 0
    assert starts[1:31].min() > 0.75 * starts[1:31].max()


@pytest.mark.parametrize("needles", [2, 4, 8])
def test_guesses_that_ignore_the_key_are_at_chance(needles: int) -> None:
    """Guesses that ignore which key is asked for are right 1/N of the time, and no more."""
    tokens, positions = recall_batch(DEFAULT, needles=needles, queries=2, samples=8000, seed=1)
    rows = tokens.numpy()
    answers = rows[:, 1:][:, positions]
    is_value = rows[:, :33] >= 96
    values = rows[:, :33][is_value].reshape(-1, needles)
    for position in range(needles):
        right = (values[:, [position]] == answers).mean(0)
        assert right == pytest.approx(1 / needles, abs=0.02)
    for guess in (values.min(1), values.max(1)):
        assert (guess == answers[:, 0]).mean() == pytest.approx(1 / needles, abs=0.02)
    repeats = (answers[:, 0] == answers[:, 1]).mean()
    assert repeats == pytest.approx(1 / needles, abs=0.02)


def test_keys_and_values_are_independent() -> None:
    rows = training_rows(DEFAULT, 20_000, np.random.default_rng(2))
    key, value = rows[:, 33] - 64, rows[:, 34] - 96
    table = np.zeros((32, 32))
    np.add.at(table, (key, value), 1)
    expected = 20_000 / 1024
    # Pearson's statistic has mean 1023 and standard deviation about 45 if they are independent.
    assert ((table - expected) ** 2 / expected).sum() == pytest.approx(1023, abs=225)


def test_seeds_and_longer_haystacks() -> None:
    def rows(seed: int, haystack_length: int | None = None) -> Rows:
        return recall_batch(
            DEFAULT, needles=3, queries=2, samples=50, seed=seed, haystack_length=haystack_length
        )[0].numpy()

    assert np.array_equal(rows(0), rows(0))
    assert not np.array_equal(rows(0), rows(1))
    assert rows(0, haystack_length=200).shape == (50, 204)
    assert len(read_row(rows(0, haystack_length=200)[0], 200)[0]) == 3


def test_evaluation_rows_are_not_training_rows() -> None:
    """With one needle, the same seed and layout the two generators could meet, and do not."""
    settings = RecallConfig(max_needles=1)
    train = training_rows(settings, 5000, np.random.default_rng([0, 0, 0]))
    test = recall_batch(settings, needles=1, queries=16, samples=5000, seed=0)[0].numpy()
    assert not set(map(bytes, train)) & set(map(bytes, test))


@pytest.mark.parametrize(("needles", "length"), [(17, None), (0, None), (4, 7), (33, 200)])
def test_needles_that_do_not_fit_are_refused(needles: int, length: int | None) -> None:
    with pytest.raises(DataError, match=f"{needles} needles, but 1 to"):
        recall_batch(DEFAULT, needles=needles, queries=2, samples=1, seed=0, haystack_length=length)
