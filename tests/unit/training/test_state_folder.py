"""Contents of the state folder: checkpoints and heartbeat."""

import errno
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_saver import save

from difftransformer.errors import CheckpointError
from difftransformer.training import checkpoint
from difftransformer.training.checkpoint import CheckpointStore, TrainState
from difftransformer.training.distributed import read_shards
from difftransformer.training.process_group import ProcessGroup, T
from difftransformer.training.progress import Progress


def train_state(step: int) -> TrainState:
    return TrainState(step, {"w": torch.full((3,), float(step))}, {"history": [step]})


def store(folder: Path, keep: int = 2, identity: str = "me") -> CheckpointStore:
    return CheckpointStore(folder, keep=keep, identity=identity)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_newest_checkpoint_loads_and_the_last_k_are_kept(tmp_path: Path) -> None:
    checkpoints = store(tmp_path)
    assert checkpoints.latest_valid() is None
    for step in (1, 2, 10):
        checkpoints.save(train_state(step))
    assert names(tmp_path) == ["checkpoint-00000002", "checkpoint-00000010"]
    newest = store(tmp_path).latest_valid()
    assert newest is not None
    assert newest.step == 10
    assert newest.metadata["history"] == [10]
    assert torch.equal(newest.tensors["w"], torch.full((3,), 10.0))


def test_one_that_is_half_dropped_does_not_look_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = store(tmp_path, keep=1)
    checkpoints.save(train_state(1))
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda path, **_: None)  # killed before it did anything
        checkpoints.save(train_state(2))
    assert names(tmp_path) == ["checkpoint-00000001.partial", "checkpoint-00000002"]
    store(tmp_path)
    assert names(tmp_path) == ["checkpoint-00000002"]


def test_what_is_written_behind_is_as_it_was_and_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, write, under_way = threading.Event(), checkpoint.save_file, []

    def slow(tensors: dict[str, torch.Tensor], path: Path) -> None:
        under_way.append(path.parent.name)
        assert go_on.wait(60)
        write(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", slow)
    trained = train_state(1)
    with store(tmp_path) as checkpoints:
        checkpoints.save(trained, async_=True)
        trained.tensors["w"].fill_(-1.0)  # training goes on
        checkpoints.wait(block=False)
        assert names(tmp_path) in ([], ["checkpoint-00000001.partial"])
        threading.Timer(0.1, go_on.set).start()
        checkpoints.save(train_state(2), async_=True)  # waits for the one before
        assert "checkpoint-00000001" in names(tmp_path)
    assert under_way == ["checkpoint-00000001.partial", "checkpoint-00000002.partial"]
    assert names(tmp_path) == ["checkpoint-00000001", "checkpoint-00000002"]
    (tmp_path / "checkpoint-00000002" / "sums.json").unlink()
    newest = store(tmp_path).latest_valid()
    assert newest is not None and torch.equal(newest.tensors["w"], torch.ones(3))


def test_errors_of_asynchronous_writes_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    line = r"step 9 could not be written .*No space left on device.*; .* is of step 5: make room"
    with store(tmp_path) as checkpoints:
        checkpoints.save(train_state(5))
        monkeypatch.setattr(checkpoint, "save_file", full)
        checkpoints.save(train_state(9), async_=True)
        with pytest.raises(CheckpointError, match=line):
            checkpoints.wait()
        checkpoints.wait()  # said once
    with pytest.raises(CheckpointError, match=line), store(tmp_path) as checkpoints:
        checkpoints.save(train_state(9), async_=True)
    with pytest.raises(KeyError), store(tmp_path) as checkpoints:  # no reason to hide another
        checkpoints.save(train_state(9), async_=True)
        raise KeyError
    assert "checkpoint of step 9 could not be written" in caplog.text
    assert names(tmp_path) == ["checkpoint-00000005"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)


def test_intact_checkpoint_that_cannot_be_read_is_kept(tmp_path: Path) -> None:
    store(tmp_path).save(train_state(3))
    unreadable = r"00000003 is intact but cannot be read here \(lacks 1 .* is b\).* \(torch \d"
    with pytest.raises(CheckpointError, match=unreadable):
        store(tmp_path).latest_valid({"w": torch.zeros(3), "b": torch.zeros(1)})
    assert names(tmp_path) == ["checkpoint-00000003"]


def test_one_that_another_torch_wrote_goes_on_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store(tmp_path).save(train_state(3))
    assert store(tmp_path).latest_valid() is not None and not caplog.messages
    others = {"torch": "2.99.0", "transformers": "absent", "peft": "absent"}
    monkeypatch.setattr(checkpoint, "versions", lambda: others)
    assert store(tmp_path).latest_valid() is not None
    assert "and resumes with torch 2.99.0, transformers absent, peft" in caplog.messages[0]


class Follower(ProcessGroup):
    """One of two processes, of which the other has found the checkpoint of step 3."""

    rank, world_size = 1, 2

    def run_on_rank0(self, act: Callable[[], T]) -> T | None:
        return None

    def broadcast_object(self, value: Any) -> Any:
        return 3


def test_all_processes_say_of_a_checkpoint_what_the_first_one_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path).save(train_state(3))
    follower = CheckpointStore(tmp_path, keep=2, identity="me", group=Follower())
    newest = follower.latest_valid()
    assert newest is not None and newest.step == 3
    with pytest.raises(CheckpointError, match="is intact but cannot be read here"):
        follower.latest_valid({"b": torch.zeros(1)})
    refused = Mock(side_effect=OSError(errno.EIO, "Input/output error"))
    monkeypatch.setattr(checkpoint, "load_file", refused)
    with pytest.raises(
        CheckpointError, match=r"cannot be read \(Input/output error\): nothing was"
    ):
        follower.latest_valid()


def test_a_shard_that_the_disk_does_not_give_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = HuggingFaceStorageWriter(str(tmp_path), save_distributed=True)
    save({"w": torch.ones(3)}, storage_writer=writer, no_dist=True)
    assert torch.equal(read_shards(tmp_path, {})["w"], torch.ones(3))

    def refused(*_: object, **__: object) -> None:
        raise CheckpointException("read", {0: (OSError(errno.EIO, "Input/output error"), None)})

    monkeypatch.setattr("torch.distributed.checkpoint.state_dict_loader.load", refused)
    with pytest.raises(OSError, match="Input/output error"):
        read_shards(tmp_path, {})


@pytest.mark.parametrize("file", ["tensors.safetensors", "state.json", "sums.json"])
@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
def test_damaged_newest_is_reported_in_one_line_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str, damage
) -> None:
    checkpoints = store(tmp_path)
    checkpoints.save(train_state(5))
    checkpoints.save(train_state(9))
    damage(tmp_path / "checkpoint-00000009" / file)
    with caplog.at_level(logging.WARNING):
        newest = checkpoints.latest_valid()
    assert newest is not None
    assert newest.step == 5
    assert len(caplog.messages) == 1
    assert "checkpoint-00000009 is damaged" in caplog.messages[0]
    assert "\n" not in caplog.messages[0]
    checkpoints.save(train_state(9))  # the step comes again, and the damaged one goes
    assert names(tmp_path) == ["checkpoint-00000005", "checkpoint-00000009"]


def test_unreadable_checkpoint_is_not_reported_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path).save(train_state(7))
    with monkeypatch.context() as patch:
        error = OSError(errno.EIO, "Input/output error")
        patch.setattr("difftransformer.training.checkpoint.file_sha256", Mock(side_effect=error))
        with pytest.raises(CheckpointError, match=r"07 cannot be read \(Input/output error\)"):
            store(tmp_path).latest_valid()
    newest = store(tmp_path).latest_valid()
    assert newest is not None and newest.step == 7


def test_progress_line_and_heartbeat(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Mock(side_effect=[0.0, 60.0, 60.0])  # when it is made, asked, and reports
    monkeypatch.setattr("difftransformer.training.progress.time.monotonic", clock)
    progress = Progress(tmp_path, run="diff_v1", seed=3, step=0, tokens_per_step=100, interval=0.0)
    assert progress.due()
    with caplog.at_level(logging.INFO):
        progress.report(120, 600, 4.1234, 3.2e-3)
    assert caplog.messages[0].startswith("step 120/600 (20%) loss 4.123 lr 3.2e-03 ")
    beat = json.loads((tmp_path / "progress.json").read_text())
    assert {key: beat[key] for key in ("run", "seed", "step", "steps", "loss")} == {
        "run": "diff_v1",
        "seed": 3,
        "step": 120,
        "steps": 600,
        "loss": 4.1234,
    }
    assert beat["tokens_per_second"] == 200.0  # 120 steps of 100 tokens in a minute
    assert beat["eta_seconds"] == 240.0
    assert names(tmp_path) == ["progress.json"]
