"""Batches of windows for training in a seeded order, and windows in corpus order for evaluation.

The order is computed, not stored: a Feistel network permutes [0, 4^k) for the smallest 4^k >= size;
values that fall outside are sent through again until they fall inside (cycle walking), which leaves
a permutation of [0, size). So any position of any epoch is known without memory for the corpus, and
resuming needs one number.

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
"""Positions whose order is computed together, since one batch of 32 would take 0.5 ms of CPU."""
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


class SplitWindows:
    """All whole windows of a split, numbered.

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
        """Windows by number, [B] -> int64 [B, T + 1]."""
        batch = np.empty((len(indices), self.seq_len + 1), dtype=np.int64)
        for row, index in zip(batch, indices.tolist(), strict=True):
            start = index * self._stride
            row[:] = self._tokens[start : start + self.seq_len + 1]
        return torch.from_numpy(batch)


class BatchLoader:
    """Endless batches; each epoch is a fresh seeded permutation of all whole windows.

    The position is the number of windows all ranks have taken together, so a checkpoint resumes
    exactly, also on another number of ranks. A batch at the end of an epoch is filled up from the
    next one: every window is seen once in each epoch.

    Args:
        dataset: An open dataset.
        split: Name of the part that is read.
        batch_size: Windows in a batch of this rank.
        seq_len: T.
        seed: Of the order.
        rank: Number of this process among the data-parallel ones.
        world_size: How many these are.
        ahead: Batches that a thread reads before they are asked for; the position is that of what
            was given, so they change nothing but the time. Where there is a GPU they are given in
            memory that it copies from while it computes.

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
        self._taken = 0
        self._ahead, self._pinned = (
            prefetch_batches,
            prefetch_batches > 0 and torch.cuda.is_available(),
        )
        self._reader = ThreadPoolExecutor(1, "loader")
        self._read_ahead: deque[Future[torch.Tensor]] = deque()
        self._seed = seed
        self._block = lru_cache(2)(self._block_order)

    def next_batch(self) -> torch.Tensor:
        """Return the next batch of this rank, int64 [B, T + 1]; advances the position."""
        step = self._batch_size * self._world_size
        if not self._ahead:
            batch = self._batch(self._taken)
        else:
            for number in range(len(self._read_ahead), self._ahead + 1):
                reading = self._reader.submit(self._batch, self._taken + number * step)
                self._read_ahead.append(reading)
            batch = self._read_ahead.popleft().result()
        self._taken += step
        return batch

    def _batch(self, taken: int) -> torch.Tensor:
        """Return the batch of this rank at a position."""
        first = taken + self._rank * self._batch_size
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
        """Return the position, and what it is a position in."""
        return {**self._identity, "taken": self._taken}

    def load_state_dict(self, state: dict[str, int | str]) -> None:
        """Continues from a saved position.

        Raises:
            CheckpointError: The position belongs to another dataset, split, seq_len or seed.
        """
        for name, mine in self._identity.items():
            if state.get(name) != mine:
                raise CheckpointError(
                    f"data position of a checkpoint does not fit: its {name} is "
                    f"{state.get(name)}, this run has {mine}"
                )
        self._taken = int(state["taken"])
        self._read_ahead.clear()


def sequential_windows(
    dataset: PackedDataset,
    split: str,
    *,
    seq_len: int,
    batch_size: int,
    max_tokens: int | None = None,
) -> Iterator[torch.Tensor]:
    """Windows in corpus order without overlap of targets, int64 [b, T + 1], the last b smaller.

    There are at most `max_tokens` targets, rounded down to whole windows (at least one).

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
