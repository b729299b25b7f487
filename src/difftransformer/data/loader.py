"""Batches of windows: shuffled with a seed for training, in corpus order for evaluation.

The shuffle is computed, not stored: a Feistel network permutes [0, 4^k) for the smallest 4^k >=
size; values outside [0, size) are permuted again until they are inside (cycle walking), which gives
a permutation of [0, size). So any position of any epoch takes O(1), without memory for the corpus,
and resuming needs one number.

Shapes: B = windows in a batch, T = positions of a window; a window holds T + 1 tokens, so that
``window[:-1]`` are inputs and ``window[1:]`` targets.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from difftransformer.data.packed import PackedDataset
from difftransformer.errors import CheckpointError, DataError

_ROUNDS = 6
_BLOCK = 1024
"""Positions whose order is computed at once; one batch at a time would take 0.5 ms each."""
_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)


def _scramble(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the finalizer of SplitMix64 (Steele et al. 2014): every bit depends on every bit."""
    values = (values ^ (values >> np.uint64(30))) * _MULTIPLIER
    values = (values ^ (values >> np.uint64(27))) * _MULTIPLIER_2
    return values ^ (values >> np.uint64(31))


class SeededOrder:
    """A pseudorandom permutation (shuffle) of 0 to size - 1 that depends on seed and epoch."""

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
        """Return the elements at positions in [0, size), same shape."""
        values = self._permute(positions.astype(np.uint64))
        outside = values >= self.size
        while outside.any():
            values[outside] = self._permute(values[outside])
            outside = values >= self.size
        return values.astype(np.int64)


class SplitWindows:
    """The full windows of a split, accessed by index.

    Window i of running text is tokens[i*T : i*T + T + 1], so each token is a target once; window i
    of a row dataset is row i.
    """

    def __init__(self, dataset: PackedDataset, split: str, seq_len: int) -> None:
        row_length = dataset.manifest.row_length
        if row_length is not None and row_length != seq_len + 1:
            raise DataError(
                f"{dataset.folder}: rows have {row_length} tokens, seq_len {seq_len} needs "
                f"{seq_len + 1}: set training.seq_len to {row_length - 1}"
            )
        self._tokens = dataset.split(split).tokens
        self.seq_len = seq_len
        self._stride = seq_len if row_length is None else row_length
        self._count = max(0, (len(self._tokens) - seq_len - 1) // self._stride + 1)

    def __len__(self) -> int:
        return self._count

    def gather(self, indices: np.ndarray) -> torch.Tensor:
        """Return the windows of the given indices, [B] -> int64 [B, T + 1]."""
        batch = np.empty((len(indices), self.seq_len + 1), dtype=np.int64)
        for row, index in zip(batch, indices.tolist(), strict=True):
            start = index * self._stride
            row[:] = self._tokens[start : start + self.seq_len + 1]
        return torch.from_numpy(batch)


class BatchLoader:
    """An endless iterator of batches; each epoch is a new shuffle of all full windows.

    The position is the number of windows that all ranks have consumed, so a checkpoint resumes
    exactly, also with another number of ranks. The last batch of an epoch is filled from the next
    one: every window is read once per epoch.

    Args:
        dataset: An opened dataset.
        split: Name of the split.
        batch_size: Windows in a batch of this rank.
        seq_len: Targets per window, T.
        seed: Seed of the shuffle.
        rank: Rank of this process among the data-parallel processes.
        world_size: Number of data-parallel processes.
        prefetch_batches: Batches that a thread reads ahead, into pinned memory if there is a GPU;
            the position does not count them, so the batches are the same.

    Raises:
        DataError: The split has fewer windows than one batch of all ranks.
    """

    def __init__(
        self,
        dataset: PackedDataset,
        split: str,
        *,
        batch_size: int,
        seq_len: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        prefetch_batches: int = 0,
    ) -> None:
        assert 0 <= rank < world_size and batch_size > 0
        self._windows = SplitWindows(dataset, split, seq_len)
        if len(self._windows) < batch_size * world_size:
            raise DataError(
                f"{dataset.folder}: split {split} has {len(self._windows)} windows of {seq_len} "
                f"tokens, fewer than one batch of {batch_size * world_size}: "
                "use more text, a smaller batch or a shorter seq_len"
            )
        self._identity: dict[str, int | str] = {"dataset": dataset.digest, "split": split}
        self._identity |= {"seq_len": seq_len, "seed": seed}
        self._batch_size, self._rank, self._world_size = batch_size, rank, world_size
        self._consumed = 0
        self._prefetch_batches, self._pinned = (
            prefetch_batches,
            prefetch_batches > 0 and torch.cuda.is_available(),
        )
        self._reader = ThreadPoolExecutor(1, "loader")
        self._prefetched: deque[Future[torch.Tensor]] = deque()
        self._seed = seed
        self._block = lru_cache(2)(self._block_order)

    def next_batch(self) -> torch.Tensor:
        """Return the next batch of this rank, int64 [B, T + 1], and advance the position."""
        step = self._batch_size * self._world_size
        if not self._prefetch_batches:
            batch = self._batch(self._consumed)
        else:
            for number in range(len(self._prefetched), self._prefetch_batches + 1):
                future = self._reader.submit(self._batch, self._consumed + number * step)
                self._prefetched.append(future)
            batch = self._prefetched.popleft().result()
        self._consumed += step
        return batch

    def _batch(self, consumed: int) -> torch.Tensor:
        """Return the batch of this rank at a position."""
        first = consumed + self._rank * self._batch_size
        block, start = divmod(first, _BLOCK)
        blocks = range(block, block + (start + self._batch_size - 1) // _BLOCK + 1)
        indices = np.concatenate([self._block(number) for number in blocks])
        batch = self._windows.gather(indices[start : start + self._batch_size])
        return batch.pin_memory() if self._pinned else batch

    def _block_order(self, block: int) -> NDArray[np.int64]:
        """Return the windows at the positions of a block, which may span several epochs."""
        size = len(self._windows)
        epochs, positions = np.divmod(np.arange(block * _BLOCK, (block + 1) * _BLOCK), size)
        parts = [
            SeededOrder(size, seed=self._seed, epoch=epoch)(positions[epochs == epoch])
            for epoch in np.unique(epochs).tolist()
        ]
        return np.concatenate(parts)

    def state_dict(self) -> dict[str, int | str]:
        """Return the position of the loader, with dataset, split, seq_len and seed."""
        return {**self._identity, "consumed": self._consumed}

    def load_state_dict(self, state: dict[str, int | str]) -> None:
        """Continue from a position returned by `state_dict`.

        Raises:
            CheckpointError: The position belongs to another dataset, split, seq_len or seed.
        """
        for name, expected in self._identity.items():
            if state.get(name) != expected:
                raise CheckpointError(
                    f"the data position of the checkpoint is of another run: its {name} is "
                    f"{state.get(name)}, this run has {expected}"
                )
        self._consumed = int(state["consumed"])
        self._prefetched.clear()


def sequential_windows(
    dataset: PackedDataset,
    split: str,
    *,
    seq_len: int,
    batch_size: int,
    max_tokens: int | None = None,
) -> Iterator[torch.Tensor]:
    """Yield batches of windows in corpus order, int64 [b, T + 1], whose targets do not overlap.

    The last batch may be smaller. There are at most `max_tokens` targets, rounded down to full
    windows (at least one).

    Raises:
        DataError: The split is shorter than one window.
    """
    windows = SplitWindows(dataset, split, seq_len)
    if not (count := len(windows)):
        raise DataError(
            f"{dataset.folder}: split {split} is shorter than one window of {seq_len} tokens: "
            "use more text or a shorter seq_len"
        )
    if max_tokens is not None:
        count = min(count, max(1, max_tokens // seq_len))
    starts = range(0, count, batch_size)
    return (windows.gather(np.arange(at, min(at + batch_size, count))) for at in starts)
