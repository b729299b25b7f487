"""Key-value retrieval rows (associative recall): needles in a predictable haystack, then queries.

Layout of a row: `haystack_length` tokens in which N needles, a key followed by its value, replace
fillers at random positions without overlap; then queries, each a key of the row and its value. Keys
and values of a row are distinct, and queries draw keys independently with replacement: a guess that
ignores the key is right 1/N of the time.

The haystack is an order-2 source over the fillers, x[t+1] = pi(x[t-1]) with probability 0.8, else
uniform, where pi is one cycle over all fillers fixed by their number. With a random haystack no
model learns retrieval in a small budget.

Shapes: S = rows, N = needles, R = queries, H = tokens of the haystack.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from difftransformer.config.generated_rows import RecallConfig
from difftransformer.errors import DataError

if TYPE_CHECKING:
    import torch

_PI_SEED = 20251
_PREDICTABILITY = 0.8
"""Probability that x[t+1] = pi(x[t-1]) in the haystack."""


class RecallVocabulary(NamedTuple):
    """Three disjoint ranges of token ids: filler tokens, keys and values."""

    fillers: range
    keys: range
    values: range

    @classmethod
    def of(cls, settings: RecallConfig) -> "RecallVocabulary":
        """Return the vocabulary of a dataset: ids of fillers first, then keys, then values."""
        first_value = settings.num_fillers + settings.num_keys
        return cls(
            range(settings.num_fillers),
            range(settings.num_fillers, first_value),
            range(first_value, settings.vocab_size),
        )


def successor(num_fillers: int) -> NDArray[np.int64]:
    """Return the permutation pi of the fillers: one cycle, the same for all seeds, [F]."""
    cycle = np.random.default_rng(_PI_SEED).permutation(num_fillers)
    pi = np.empty(num_fillers, dtype=np.int64)
    pi[cycle] = np.roll(cycle, -1)
    return pi


def answer_positions(haystack_length: int, queries: int) -> list[int]:
    """Return the positions of the queried values among the targets, tokens[1:], [R]."""
    return list(range(haystack_length, haystack_length + 2 * queries, 2))


def generate_rows(
    settings: RecallConfig,
    needles: NDArray[np.int64],
    generator: np.random.Generator,
    *,
    queries: int,
    haystack_length: int,
) -> NDArray[np.int64]:
    """Return retrieval rows with the given numbers of needles [S], token ids [S, H + 2R]."""
    S = len(needles)
    vocabulary = RecallVocabulary.of(settings)
    max_needles = int(needles.max())
    rows = np.empty((S, haystack_length + 2 * queries), dtype=np.int64)
    rows[:, :haystack_length] = haystack(settings, S, haystack_length, generator)
    keys = _distinct(S, settings.num_keys, max_needles, generator) + vocabulary.keys.start
    values = _distinct(S, settings.num_values, max_needles, generator) + vocabulary.values.start
    positions = _needle_positions(needles, haystack_length, max_needles, generator)
    row, needle = np.nonzero(np.arange(max_needles) < needles[:, None])
    rows[row, positions[row, needle]] = keys[row, needle]
    rows[row, positions[row, needle] + 1] = values[row, needle]
    queried = generator.integers(0, needles[:, None], size=(S, queries))
    rows[:, haystack_length::2] = np.take_along_axis(keys, queried, axis=1)
    rows[:, haystack_length + 1 :: 2] = np.take_along_axis(values, queried, axis=1)
    return rows


def training_rows(
    settings: RecallConfig, samples: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Return rows with 1 to max_needles needles, uniformly distributed, [samples, row_length]."""
    needles = generator.integers(1, settings.max_needles + 1, size=samples)
    queries, length = settings.num_queries, settings.haystack_length
    return generate_rows(settings, needles, generator, queries=queries, haystack_length=length)


def recall_batch(
    settings: RecallConfig,
    *,
    needles: int,
    queries: int,
    samples: int,
    seed: int,
    haystack_length: int | None = None,
) -> tuple["torch.Tensor", list[int]]:
    """Return evaluation rows with exactly ``needles`` needles in a haystack, then the queries.

    Args:
        settings: Settings of the dataset.
        needles: Number of needles, N; may exceed max_needles (out of distribution). Chance
            accuracy is 1/N.
        queries: Number of queries per row, R.
        samples: Number of rows, S.
        seed: Seed of the rows; their random stream differs from those of training splits.
        haystack_length: Number of haystack tokens, H; None: as in training rows.

    Returns:
        Tokens, int64 [S, H + 2R], and the answers' positions in tokens[:, 1:], [R].

    Raises:
        DataError: The needles do not fit into the haystack or the vocabulary.
    """
    import torch

    length = settings.haystack_length if haystack_length is None else haystack_length
    limit = settings.most_needles(length)
    if not 1 <= needles <= limit:
        raise DataError(
            f"recall: {needles} needles, but 1 to {limit} fit a haystack of {length} tokens, "
            f"{settings.num_keys} keys and {settings.num_values} values"
        )
    generator = np.random.default_rng([seed, needles, queries, length, 1])
    numbers = np.full(samples, needles, dtype=np.int64)
    rows = generate_rows(settings, numbers, generator, queries=queries, haystack_length=length)
    return torch.from_numpy(rows), answer_positions(length, queries)


def haystack(
    settings: RecallConfig, S: int, H: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Return S haystacks of H fillers, sampled from the order-2 Markov source, [S, H]."""
    pi = successor(settings.num_fillers)
    tokens = generator.integers(0, settings.num_fillers, size=(S, H))
    follows = generator.random((S, H)) < _PREDICTABILITY
    for t in range(2, H):
        tokens[:, t] = np.where(follows[:, t], pi[tokens[:, t - 2]], tokens[:, t])
    return tokens


def _distinct(S: int, size: int, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` different numbers below `size` per row, [S, count]."""
    return np.argsort(generator.random((S, size)), axis=1)[:, :count]


def _needle_positions(
    needles: NDArray[np.int64], H: int, max_needles: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Draw starts of N pairs without overlap, all arrangements equally likely, [S, max_needles].

    Choose N of H - N slots and widen each chosen slot to two tokens. Entries past a row's N are
    meaningless.
    """
    slots = H - needles[:, None]
    scores = generator.random((len(needles), H))
    scores[np.arange(H) >= slots] = 2.0
    ranked = np.argsort(scores, axis=1)[:, :max_needles]
    ranked = np.where(np.arange(max_needles) < needles[:, None], ranked, H)
    return np.sort(ranked, axis=1) + np.arange(max_needles)
