"""Fixtures of the training tests: two tiny datasets, and one call that trains."""

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest

from difftransformer.data.packed import TokenizerEntry
from difftransformer.data.recall import answer_positions, training_rows

sys.path.insert(0, str(Path(__file__).parent))  # pytest's import mode importlib leaves it out
from tiny_training import RECALL, VOCAB, Train, train_in, write_dataset


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Running text that can be predicted: steps of +1 or +2 around a circle of 64 tokens."""
    steps = np.random.default_rng(0).integers(1, 3, size=6000)
    tokens = np.cumsum(steps) % VOCAB
    splits = {"train": tokens[:5000], "validation": tokens[5000:]}
    tokenizer = b'{"this": "is copied"}'
    entry = TokenizerEntry(kind="bpe", sha256=hashlib.sha256(tokenizer).hexdigest(), eos_id=0)
    folder = tmp_path_factory.mktemp("data") / "text"
    write_dataset(folder, splits, vocab_size=VOCAB, tokenizer=entry)
    (folder / "tokenizer.json").write_bytes(tokenizer)
    return folder


@pytest.fixture(scope="session")
def recall(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of key-value retrieval with answer positions."""
    generator = np.random.default_rng(0)
    splits = {
        "train": training_rows(RECALL, 400, generator).reshape(-1),
        "validation": training_rows(RECALL, 40, generator).reshape(-1),
    }
    return write_dataset(
        tmp_path_factory.mktemp("data") / "recall",
        splits,
        vocab_size=RECALL.vocab_size,
        row_length=RECALL.row_length,
        answer_positions=answer_positions(RECALL.haystack_length, RECALL.num_queries),
        recall=RECALL,
    )


@pytest.fixture
def train(tmp_path: Path, text: Path) -> Train:
    """Train or adapt in ``tmp_path/name`` (folders out and state) and give that folder."""
    return train_in(tmp_path, text)
