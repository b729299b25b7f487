"""Opening packed datasets, and errors on damaged files and manifests."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from spoiling import change_manifest

from difftransformer.data.packed import PackedDataset, TokenView
from difftransformer.errors import DataError


@pytest.fixture
def copy(stdlib: PackedDataset, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stdlib.folder, tmp_path / "copy"))


def flip(path: Path, byte: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(content)


def test_a_good_dataset_opens(copy: Path, stdlib: PackedDataset) -> None:
    opened = PackedDataset.open(copy)
    assert opened.digest == stdlib.digest
    assert opened.split("train").entry == stdlib.split("train").entry


@pytest.mark.parametrize("name", ["shards/train-00001.bin", "shards/validation-00000.bin"])
def test_truncated_shards_are_detected_on_opening(copy: Path, name: str) -> None:
    (copy / name).write_bytes((copy / name).read_bytes()[:-2])
    with pytest.raises(DataError, match=rf"{name}: has \d+ bytes, not \d+ .*; delete"):
        PackedDataset.open(copy)


@pytest.mark.parametrize("name", ["shards/train-00001.bin", "shards/train-00001.documents.npy"])
def test_a_flipped_bit_is_detected_when_its_split_is_read(copy: Path, name: str) -> None:
    flip(copy / name, -1)
    opened = PackedDataset.open(copy)
    assert opened.split("validation")
    with pytest.raises(DataError, match=rf"{name}: content differs from its recorded sha256"):
        opened.split("train")


def test_the_tokenizer_of_another_dataset_is_refused(copy: Path) -> None:
    (copy / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer\.json: content differs from its recorded"):
        PackedDataset.open(copy)


@pytest.mark.parametrize(
    "name", ["shards/train-00001.bin", "shards/train-00001.documents.npy", "manifest.json"]
)
def test_missing_files_are_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(DataError, match=rf"{name}: .*(missing|no such file)"):
        PackedDataset.open(copy)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{", "[", "not a dataset manifest"),
        ('"vocab_size"', '"vocabulary"', "not a dataset manifest"),
        ('"vocab_size": 512', '"vocab_size": 513', "changed since it was written"),
    ],
)
def test_damaged_manifests_are_refused(copy: Path, old: str, new: str, message: str) -> None:
    path = copy / "manifest.json"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=rf"manifest\.json: {message}") as caught:
        PackedDataset.open(copy)
    assert "\n" not in str(caught.value)


def test_unknown_split(stdlib: PackedDataset) -> None:
    with pytest.raises(DataError, match="no split 'test'; it has train, validation"):
        stdlib.split("test")


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(-50, 50), st.integers(-50, 50)
)
def test_a_view_reads_like_one_array(lengths: list[int], start: int, stop: int) -> None:
    array = np.arange(sum(lengths), dtype=np.uint16)
    view = TokenView(np.split(array, np.cumsum(lengths)[:-1].tolist()), len(array))
    assert len(view) == len(array)
    assert np.array_equal(view[start:stop], array[start:stop])
    assert np.array_equal(view[:], array)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(
        [
            "manifest.json",
            "shards/train-00000.bin",
            "shards/validation-00000.bin",
            "shards/train-00000.documents.npy",
        ]
    ),
    at=st.integers(0, 4000),
    content=st.binary(max_size=12),
)
def test_damaged_files_are_read_or_raise_a_data_error(
    stdlib: PackedDataset, tmp_path: Path, name: str, at: int, content: bytes
) -> None:
    folder = Path(shutil.copytree(stdlib.folder, tmp_path / "damaged", dirs_exist_ok=True))
    original = (folder / name).read_bytes()
    (folder / name).write_bytes(original[:at] + content + original[at + len(content) :])
    try:
        opened = PackedDataset.open(folder)
        for split in opened.manifest.splits:
            packed = opened.split(split)
            assert packed.tokens[:].max() < opened.manifest.vocab_size
            assert packed.document_ends()[-1] == len(packed.tokens)
    except DataError as error:
        assert str(folder) in str(error) or "token id" in str(error)
        assert "\n" not in str(error)


KEYS = ["dtype", "vocab_size", "row_length", "splits", "splits.train", "splits.train.shards"]
KEYS += [f"splits.validation.shards.0.{key}" for key in ("file", "tokens", "documents", "sha256")]
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(KEYS), value=VALUES | st.lists(VALUES, max_size=2))
@example(key="splits.validation.shards.0.file", value="\n")
def test_any_manifest_with_a_valid_digest_is_read_or_raises_a_data_error(
    stdlib: PackedDataset, tmp_path: Path, key: str, value: Any
) -> None:
    folder = Path(shutil.copytree(stdlib.folder, tmp_path / "signed", dirs_exist_ok=True))
    shutil.copy(stdlib.folder / "manifest.json", folder)  # hypothesis comes here again and again
    change_manifest(folder / "manifest.json", key, value)
    try:
        opened = PackedDataset.open(folder)
        for split in opened.manifest.splits:
            packed = opened.split(split)
            assert not len(packed.tokens) or packed.tokens[:].max() < opened.manifest.vocab_size
    except DataError as error:
        assert str(folder) in str(error) or "token id" in str(error)
        assert "\n" not in str(error)
