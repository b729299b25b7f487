"""Order, batching and resuming of the data loader."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from difftransformer.data.loader import BatchLoader, SeededOrder, sequential_windows
from difftransformer.data.packed import (
    Manifest,
    PackedDataset,
    ShardEntry,
    SplitEntry,
    TokenizerEntry,
)
from difftransformer.errors import CheckpointError, DataError
from difftransformer.provenance.checksums import file_sha256


def dataset_of(tokens: int, folder: Path, row_length: int | None = None) -> PackedDataset:
    """Tokens 0, 1, 2 ... in one shard, so that a token tells its place."""
    path = folder / "shards" / f"train-{tokens}-{row_length}.bin"
    path.parent.mkdir(exist_ok=True)
    np.arange(tokens, dtype="<u2").tofile(path)
    documents = 1 if row_length is None else tokens // row_length
    digest = file_sha256(path)
    shard = ShardEntry(file=path.name, tokens=tokens, documents=documents, sha256=digest)
    manifest = Manifest(
        vocab_size=tokens,
        dtype="uint16",
        tokenizer=TokenizerEntry(kind="none"),
        row_length=row_length,
        splits={"train": SplitEntry(tokens=tokens, documents=documents, shards=[shard])},
        sources={},
    )
    return PackedDataset(folder, manifest)


@given(st.integers(1, 3000), st.integers(0, 2**31), st.integers(0, 1000))
def test_an_order_is_a_permutation(size: int, seed: int, epoch: int) -> None:
    order = SeededOrder(size, seed=seed, epoch=epoch)
    assert sorted(order(np.arange(size)).tolist()) == list(range(size))


def test_orders_look_random() -> None:
    size, positions = 1009, np.arange(1009)
    drawn = np.stack([SeededOrder(size, seed=s, epoch=0)(positions) for s in range(200)])
    first = np.bincount(drawn[:, 0] * 8 // size, minlength=8)
    assert first.min() > 8 and first.max() < 50
    assert abs(np.corrcoef(drawn.ravel(), np.tile(positions, 200))[0, 1]) < 0.01
    steps = np.diff(drawn, axis=1)
    assert (np.abs(steps) == 1).mean() < 0.01
    later = SeededOrder(size, seed=0, epoch=1)(positions)
    assert (later == drawn[0]).mean() < 0.02


@settings(max_examples=60)
@given(
    windows=st.integers(1, 60),
    spare=st.integers(0, 7),
    batch_size=st.integers(1, 5),
    world_size=st.integers(1, 4),
    resume_after=st.integers(0, 30),
    resumed_world_size=st.integers(1, 4),
)
def test_every_epoch_sees_every_window_once(
    tmp_path_factory: pytest.TempPathFactory,
    windows: int,
    spare: int,
    batch_size: int,
    world_size: int,
    resume_after: int,
    resumed_world_size: int,
) -> None:
    """Also across a resume, also on another number of ranks; ranks share nothing in an epoch."""
    dataset = dataset_of(windows * 8 + 1 + spare, tmp_path_factory.getbasetemp())

    def ranks(size: int) -> list[BatchLoader]:
        return [
            BatchLoader(
                dataset,
                "train",
                batch_size=batch_size,
                seq_len=8,
                seed=3,
                rank=rank,
                world_size=size,
            )
            for rank in range(size)
        ]

    if windows < batch_size * max(world_size, resumed_world_size):
        return
    loaders = ranks(world_size)
    seen: list[int] = []
    for step in range(3 * windows + resume_after):
        if step == resume_after:
            state = loaders[0].state_dict()
            loaders = ranks(resumed_world_size)
            for loader in loaders:
                loader.load_state_dict(state)
        for loader in loaders:
            seen += (loader.next_batch()[:, 0] // 8).tolist()
    for start in range(0, len(seen) - windows + 1, windows):
        assert sorted(seen[start : start + windows]) == list(range(windows))
    assert seen[:windows] != seen[windows : 2 * windows] or windows < 8


@pytest.mark.parametrize("batch_size", [7, 700, 1100])
def test_batches_follow_the_order_of_each_epoch(tmp_path: Path, batch_size: int) -> None:
    """4400 windows span several of the blocks in which the order is computed."""
    windows = 1100
    dataset = dataset_of(windows * 8 + 1, tmp_path)
    loader = BatchLoader(dataset, "train", batch_size=batch_size, seq_len=8, seed=3)
    steps = 4 * windows // batch_size
    seen = torch.cat([loader.next_batch()[:, 0] // 8 for _ in range(steps)])
    epochs = [SeededOrder(windows, seed=3, epoch=epoch)(np.arange(windows)) for epoch in range(4)]
    assert seen.tolist() == np.concatenate(epochs)[: len(seen)].tolist()


def test_prefetching_changes_no_batch_and_no_position(tmp_path: Path) -> None:
    dataset = dataset_of(8 * 20 + 1, tmp_path)
    plain, prefetching = (
        BatchLoader(dataset, "train", batch_size=3, seq_len=8, seed=0, prefetch_batches=count)
        for count in (0, 2)
    )
    start = prefetching.state_dict()
    for _ in range(10):
        assert torch.equal(plain.next_batch(), prefetching.next_batch())
        assert plain.state_dict() == prefetching.state_dict()
    prefetching.load_state_dict(start)  # what was read for elsewhere is thrown away
    again = BatchLoader(dataset, "train", batch_size=3, seq_len=8, seed=0)
    assert torch.equal(prefetching.next_batch(), again.next_batch())


def test_windows_overlap_by_one_token_so_that_each_is_a_target_once(tmp_path: Path) -> None:
    dataset = dataset_of(8 * 20 + 1, tmp_path)
    loader = BatchLoader(dataset, "train", batch_size=20, seq_len=8, seed=0)
    batch = loader.next_batch()
    assert batch.dtype == torch.int64 and batch.shape == (20, 9)
    assert sorted(batch[:, 1:].flatten().tolist()) == list(range(1, 161))


def test_generated_rows_are_windows(tmp_path: Path) -> None:
    dataset = dataset_of(9 * 20, tmp_path, row_length=9)
    batch = BatchLoader(dataset, "train", batch_size=20, seq_len=8, seed=0).next_batch()
    assert sorted(batch[:, 0].tolist()) == list(range(0, 180, 9))
    assert sorted(batch.flatten().tolist()) == list(range(180))
    with pytest.raises(DataError, match=r"rows have 9 tokens, seq_len 16 needs 17: .* to 8"):
        BatchLoader(dataset, "train", batch_size=2, seq_len=16, seed=0)


def test_seeds_give_different_orders(tmp_path: Path) -> None:
    dataset = dataset_of(8 * 200 + 1, tmp_path)
    first, again, other = (
        BatchLoader(dataset, "train", batch_size=9, seq_len=8, seed=seed) for seed in (0, 0, 1)
    )
    batch = first.next_batch()
    assert torch.equal(batch, again.next_batch())
    assert not torch.equal(batch, other.next_batch())


def test_a_corpus_smaller_than_a_batch_is_refused(tmp_path: Path) -> None:
    dataset = dataset_of(8 * 7 + 1, tmp_path)
    with pytest.raises(DataError, match=r"7 windows of 8 tokens, fewer than one batch of 8"):
        BatchLoader(dataset, "train", batch_size=4, seq_len=8, seed=0, world_size=2)
    with pytest.raises(DataError, match="shorter than one window of 100 tokens"):
        sequential_windows(dataset, "train", seq_len=100, batch_size=1)


@pytest.mark.parametrize("change", [{"seed": 1}, {"seq_len": 4}, {"dataset": "x"}])
def test_a_position_of_another_run_is_refused(tmp_path: Path, change: dict[str, int | str]) -> None:
    loader = BatchLoader(dataset_of(100, tmp_path), "train", batch_size=2, seq_len=8, seed=0)
    with pytest.raises(CheckpointError, match=f"its {next(iter(change))} is"):
        loader.load_state_dict(loader.state_dict() | change)


def test_sequential_windows_cover_the_split_in_order(tmp_path: Path) -> None:
    dataset = dataset_of(8 * 10 + 5, tmp_path)
    batches = list(sequential_windows(dataset, "train", seq_len=8, batch_size=4))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert torch.cat(batches)[:, 1:].flatten().tolist() == list(range(1, 81))
    few = sequential_windows(dataset, "train", seq_len=8, batch_size=4, max_tokens=47)
    assert sum(len(batch) for batch in few) == 5
