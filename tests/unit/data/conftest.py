"""A small corpus of real text, its tokenizer, and functions that configure and pack it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from difftransformer.config.data import DatasetConfig
from difftransformer.data.packed import PackedDataset
from difftransformer.data.tokenize import tokenize
from difftransformer.data.tokenizer import train_tokenizer


def _configure(**changes: Any) -> DatasetConfig:
    settings: dict[str, Any] = {
        "sources": {"stdlib": {"kind": "builtin", "name": "stdlib_text", "max_bytes": 250_000}},
        "tokenizer": {"kind": "bpe", "vocab_size": 512, "sample_bytes": 100_000},
        "validation_share": 0.2,
        "shard_tokens": 15_000,
    }
    return DatasetConfig.model_validate(settings | changes)


@pytest.fixture(scope="session")
def configure() -> Callable[..., DatasetConfig]:
    """Settings of the small corpus, with changes."""
    return _configure


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_tokenizer(_configure(), path)
    return path


def _verified(folder: Path) -> PackedDataset:
    """Open a dataset, all of its files compared with their digests."""
    dataset = PackedDataset.open(folder)
    for split in dataset.manifest.splits:
        dataset.split(split)
    return dataset


@pytest.fixture
def pack(tokenizer: Path, tmp_path: Path) -> Callable[..., PackedDataset]:
    """Tokenizes a dataset of the given settings into a folder of the given name."""

    def packed(name: str = "data", workers: int = 1, **changes: Any) -> PackedDataset:
        dataset = _configure(**changes)
        path = None if dataset.recall else tokenizer
        tokenize(dataset, path, tmp_path / name, tmp_path / f"{name}.state", workers)
        return _verified(tmp_path / name)

    return packed


@pytest.fixture(scope="session")
def stdlib(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """The small corpus, packed once by one process."""
    folder = tmp_path_factory.mktemp("stdlib")
    tokenize(_configure(), tokenizer, folder / "data", folder / "state", 1)
    return _verified(folder / "data")
