"""A seeded permutation of 0..size-1 that is computed, not stored.

A Feistel network permutes [0, 4^k) for the smallest 4^k >= size; values that fall outside are sent
through again until they fall inside (cycle walking), which leaves a permutation of [0, size). So
any position of any epoch is known without memory for the corpus, and resuming needs one number.
"""

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 6
_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)


def _scramble(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finaliser of SplitMix64 (Steele et al. 2014): every bit depends on every bit."""
    values = (values ^ (values >> np.uint64(30))) * _MULTIPLIER
    values = (values ^ (values >> np.uint64(27))) * _MULTIPLIER_2
    return values ^ (values >> np.uint64(31))


class SeededOrder:
    """Permutation number (seed, epoch) of 0..size-1; `order(positions)` gives its elements."""

    def __init__(self, size: int, *, seed: int, epoch: int) -> None:
        assert 0 < size < 2**62
        self.size = size
        half = max(1, ((size - 1).bit_length() + 1) // 2)
        self._half = np.uint64(half)
        self._mask = np.uint64((1 << half) - 1)
        self._keys = np.random.SeedSequence([seed, epoch]).generate_state(_ROUNDS, np.uint64)

    def _permute(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = values >> self._half, values & self._mask
        for key in self._keys:
            left, right = right, left ^ (_scramble(right + key) & self._mask)
        return (left << self._half) | right

    def __call__(self, positions: NDArray[np.integer]) -> NDArray[np.int64]:
        """Elements of the permutation at positions in [0, size), same shape."""
        values = self._permute(positions.astype(np.uint64))
        outside = values >= self.size
        while outside.any():
            values[outside] = self._permute(values[outside])
            outside = values >= self.size
        return values.astype(np.int64)
