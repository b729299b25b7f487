"""Fixtures of the evaluation tests: text and recall datasets, and finished trainings on them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_evaluation import RECALL, VOCAB, save_run, write_recall, write_text

from difftransformer.config.data import DatasetConfig
from difftransformer.data.ngrams import count_ngrams
from difftransformer.data.packed import PackedDataset
from difftransformer.data.tokenize import tokenize
from difftransformer.data.tokenizer import train_tokenizer

MakeText = Callable[..., PackedDataset]


@pytest.fixture
def make_text(tmp_path: Path) -> MakeText:
    """A text dataset of given validation documents."""

    def make(documents: list[list[int]], vocab_size: int = VOCAB) -> PackedDataset:
        return PackedDataset.open(write_text(tmp_path / "made", documents, vocab_size))

    return make


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve documents that repeat themselves, some 40 tokens each."""
    generator = np.random.default_rng(0)
    documents = [[*generator.integers(1, 12, size=39 + i).tolist(), 0] for i in range(12)]
    return write_text(tmp_path_factory.mktemp("data") / "text", documents, VOCAB)


@pytest.fixture(scope="session")
def recall(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recall(tmp_path_factory.mktemp("data") / "recall")


@pytest.fixture(scope="session")
def ngrams(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bigrams that the text holds more than 6 times."""
    path = tmp_path_factory.mktemp("ngrams") / "ngrams.npy"
    count_ngrams(text, path, 2, 6)
    return path


@pytest.fixture(scope="session")
def text_run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished training on the text, seed 3."""
    return save_run(tmp_path_factory.mktemp("runs") / "text", VOCAB, dataset=text)


@pytest.fixture(scope="session")
def recall_run(recall: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "recall"
    return save_run(folder, RECALL.vocab_size, dataset=recall)


@pytest.fixture(scope="session")
def english(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """Real text with a trained tokenizer."""
    folder = tmp_path_factory.mktemp("english")
    dataset = DatasetConfig.model_validate(
        {
            "sources": {"stdlib": {"kind": "builtin", "name": "stdlib_text", "max_bytes": 60_000}},
            "tokenizer": {"kind": "bpe", "vocab_size": 400, "sample_bytes": 50_000},
            "validation_share": 0.3,
        }
    )
    train_tokenizer(dataset, folder / "tokenizer.json")
    tokenize(dataset, folder / "tokenizer.json", folder, folder / "state", 1)
    return PackedDataset.open(folder)
