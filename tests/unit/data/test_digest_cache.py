"""Large shards are hashed once, and again whenever anything may have happened to them."""

import os
import shutil
import time
from pathlib import Path

import pytest

from difftransformer.data import digest_cache, packed
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import DataError


@pytest.fixture
def copy(stdlib: PackedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set, all of whose files are large, and old enough for a stamp."""
    monkeypatch.setattr(digest_cache, "MIN_SIZE", 1)
    monkeypatch.setattr(digest_cache, "_SETTLED", 0.0)
    folder = Path(shutil.copytree(stdlib.folder, tmp_path / "copy"))
    time.sleep(0.05)
    return folder


def hashed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the shards that a new reader hashes."""
    names, hashing = list[str](), packed.file_sha256
    with monkeypatch.context() as patch:
        patch.setattr(packed, "file_sha256", lambda path: names.append(path.name) or hashing(path))
        PackedDataset.open(folder).split("train")
    return [name for name in names if name.endswith((".bin", ".npy"))]


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        byte = file.read(1)[0]
        file.seek(0)
        file.write(bytes([byte ^ 1]))


def flip_and_set_back_the_time(path: Path) -> None:
    before = path.stat()
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_another_of_the_same_time(path: Path) -> None:
    other = path.with_name("other")
    shutil.copy2(path, other)
    flip_and_set_back_the_time(other)
    other.replace(path)


def test_a_second_reader_uses_cached_digests(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(hashed(copy, monkeypatch)) > 1
    assert hashed(copy, monkeypatch) == []


@pytest.mark.parametrize(
    "damage", [flip, flip_and_set_back_the_time, replace_by_another_of_the_same_time]
)
def test_damage_after_verification_is_detected(copy: Path, damage, monkeypatch) -> None:
    hashed(copy, monkeypatch)
    damage(copy / "shards" / "train-00001.bin")
    with pytest.raises(DataError, match=r"train-00001\.bin: content differs from its recorded"):
        PackedDataset.open(copy).split("train")


def test_foreign_old_and_corrupt_stamps_are_ignored(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed(copy, monkeypatch)
    stamp = copy / "shards" / ".train-00001.bin.checked.json"
    for spoiled in ("", "{}", "[]", stamp.read_text().replace('"sha256": "', '"sha256": "0')):
        stamp.write_text(spoiled)
        assert hashed(copy, monkeypatch) == ["train-00001.bin"]
    monkeypatch.setattr(digest_cache, "MAX_AGE", 0.0)
    assert len(hashed(copy, monkeypatch)) > 1


def test_recently_changed_and_small_files_get_no_stamp(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest_cache, "_SETTLED", 60.0)
    hashed(copy, monkeypatch)
    monkeypatch.setattr(digest_cache, "_SETTLED", 0.0)
    monkeypatch.setattr(digest_cache, "MIN_SIZE", 1 << 40)
    hashed(copy, monkeypatch)
    assert not list(copy.rglob(".*.checked.json"))
