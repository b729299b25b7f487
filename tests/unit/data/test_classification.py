"""Generated rows of labeled items: the row determines a label, the words determine a class."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from difftransformer.config.data import DatasetConfig
from difftransformer.config.generated_rows import ClassificationConfig
from difftransformer.data.classification import label_positions, labeled_items, training_rows
from difftransformer.data.loader import SplitWindows
from difftransformer.data.packed import PackedDataset
from difftransformer.data.rows import row_words
from difftransformer.data.tokenize import tokenize

ITEMS = ClassificationConfig(
    items=6, words=2, num_classes=5, words_per_class=3, num_labels=4, max_classes=4
)


def test_rows_pair_each_class_with_one_label() -> None:
    rows = training_rows(ITEMS, 400, np.random.default_rng(0))
    assert rows.shape == (400, 18)
    drawn = set()
    for row in rows.reshape(400, 6, 3):
        classes = (row[:, :2] - ITEMS.num_labels) // ITEMS.words_per_class
        assert (classes[:, 0] == classes[:, 1]).all() and (row[:, 0] != row[:, 1]).all()
        pairs = set(zip(classes[:, 0].tolist(), row[:, 2].tolist(), strict=True))
        class_ids, labels = ({pair[i] for pair in pairs} for i in (0, 1))
        assert len(pairs) == len(class_ids) == len(labels)
        assert row[:, 2].max() < ITEMS.num_labels and 1 <= len(pairs) <= 4
        drawn |= pairs
    assert len(drawn) == 5 * 4  # no label belongs to a class


def test_noisy_words_come_from_other_classes_of_the_row() -> None:
    drawn = np.tile([0, 1, 2], (400, 40))
    strays = np.where(np.arange(120) < 90, 0.3, 0.0)[None].repeat(400, axis=0)
    noisy = labeled_items(ITEMS, drawn, np.random.default_rng(0), strays)
    clean = labeled_items(ITEMS, drawn, np.random.default_rng(0))
    assert (noisy.labels == clean.labels).all() and (noisy.classes == drawn).all()
    assert (noisy.words[..., 0] != noisy.words[..., 1]).all()
    words, classes = ((items.words - 4) // ITEMS.words_per_class for items in (noisy, clean))
    astray = words != classes
    assert not astray[:, 90:].any()
    assert astray[:, :90].mean() == pytest.approx(0.3, abs=0.01)
    assert astray[:, :90].all(axis=2).mean() == pytest.approx(0.09, abs=0.01)
    for to in (1, 2):  # of the first class to either of the others, equally often
        there = words[:, :90:3] == classes[:, to, :1, None]
        assert there.mean() == pytest.approx(0.15, abs=0.01)


def test_labels_are_the_answers_of_a_row() -> None:
    row = training_rows(ITEMS, 1, np.random.default_rng(0))[0]
    answers = row[1:][label_positions(ITEMS)]
    assert answers.tolist() == row.reshape(6, 3)[:, 2].tolist()


def test_a_classification_dataset_is_packed_with_its_vocabulary(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    settings = {
        "sources": {"items": {"kind": "builtin", "name": "classification"}},
        "tokenizer": {"kind": "none"},
        "tokens": 1700,
        "validation_tokens": 170,
        "classification": ITEMS.model_dump(),
    }
    tokenize(DatasetConfig.model_validate(settings), None, tmp_path, tmp_path / "state", 1)
    dataset = PackedDataset.open(tmp_path)
    assert dataset.manifest.classification == ITEMS and dataset.manifest.recall is None
    assert dataset.manifest.answer_positions == [1, 4, 7, 10, 13, 16]
    assert len(SplitWindows(dataset, "train", 17)) == 100
    words = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert words.encode("c0a c0c l3 c4b").ids == [4, 6, 3, 17]
    assert len(set(row_words(ITEMS))) == ITEMS.vocab_size == words.get_vocab_size()


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"words": 4}, "words 4 of an item differ"), ({"max_classes": 5}, "num_labels 4")],
)
def test_inconsistent_settings_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ClassificationConfig.model_validate(ITEMS.model_dump() | changes)


def test_settings_and_source_go_together() -> None:
    settings = {
        "sources": {"items": {"kind": "builtin", "name": "classification"}},
        "tokenizer": {"kind": "none"},
        "tokens": 1700,
    }
    with pytest.raises(ValidationError, match="`classification` settings and a builtin source"):
        DatasetConfig.model_validate(settings)
