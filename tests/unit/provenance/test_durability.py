"""Files are synced to disk before and after they are renamed, so a power cut loses none."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from difftransformer.convert.export import new_folder
from difftransformer.provenance.atomic import link, write_text
from difftransformer.tracking.history import HISTORY_FILE
from difftransformer.tracking.tracker import RunTracker
from difftransformer.training.checkpoint import CheckpointStore, TrainState


class Disk:
    """What was synced, and what the disk has under final names."""

    def __init__(self) -> None:
        self.synced: set[Path] = set()
        self.named: set[Path] = set()

    def sync(self, path: Path) -> None:
        self.synced.add(path)
        if path.is_dir():
            self.named |= set(path.iterdir())

    def require_synced(self, path: Path) -> None:
        """Nothing below ``path`` would be lost."""
        for part in [path, *path.rglob("*")] if path.is_dir() else [path]:
            assert part in self.synced, f"{part} is renamed before it is synced"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    recorded, fsync = Disk(), os.fsync

    def recording_fsync(descriptor: int) -> None:
        fsync(descriptor)
        recorded.sync(Path(f"/proc/self/fd/{descriptor}").readlink())

    def recording(rename: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def renamed(source: Path, target: Path) -> Path:
            if source.name.startswith("."):  # or a checkpoint that is set aside
                recorded.require_synced(source)
            return rename(source, target)

        return renamed

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(Path, "replace", recording(Path.replace))
    monkeypatch.setattr(Path, "rename", recording(Path.rename))
    yield recorded


def test_a_file_is_on_the_disk_before_its_name(tmp_path: Path, disk: Disk) -> None:
    write_text(tmp_path / "result.json", "{}")
    assert tmp_path / "result.json" in disk.named


def test_a_second_name_is_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    write_text(tmp_path / "first", "x")
    link(tmp_path / "first", tmp_path / "second")
    assert tmp_path / "second" in disk.named


def test_a_checkpoint_is_on_the_disk_before_its_name(tmp_path: Path, disk: Disk) -> None:
    train_state = TrainState(3, {"w": torch.zeros(3)}, {"history": []})
    with CheckpointStore(tmp_path, keep=1, identity="me") as store:
        store.save(train_state)
    checkpoint = tmp_path / "checkpoint-00000003"
    assert checkpoint in disk.named
    partial = checkpoint.with_name(f"{checkpoint.name}.partial")
    for file in checkpoint.iterdir():
        assert partial / file.name in disk.synced
    assert partial in disk.synced


def test_an_exported_folder_is_on_the_disk_before_its_name(tmp_path: Path, disk: Disk) -> None:
    with new_folder(tmp_path / "model") as aside:
        (aside / "deep").mkdir()
        for name in ("config.json", "deep/weights"):
            (aside / name).write_text("x")
    assert tmp_path / "model" in disk.named


def test_a_flushed_history_is_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    tracker = RunTracker(tmp_path, stage="a", name="b", job_id="c")
    tracker.flush()
    assert tmp_path / HISTORY_FILE in disk.synced
    tracker.close("FINISHED")
