"""Losses of the slices against hand-computed values and invariants."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_evaluation import (
    VOCAB,
    Scripted,
    Uniform,
    copy_what_followed,
    eval_context,
    metrics_of,
    scorer,
)

from difftransformer.convert.checkpoint import load_model
from difftransformer.data.ngrams import write_keys
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError, DataError
from difftransformer.evaluation.context import Metrics
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluations.validation_slices.measure import measure
from difftransformer.evaluations.validation_slices.settings import Suite

MakeText = Callable[..., PackedDataset]


def suite(**changes: Any) -> Suite:
    return Suite(kind="validation_slices", **({"seq_len": 8, "n": 2} | changes))


def run(model: Scorer, dataset: PackedDataset, ngrams: Path, **changes: Any) -> Metrics:
    return metrics_of(measure(suite(**changes), eval_context(model, dataset, ngrams)))


@pytest.fixture
def no_frequent(tmp_path: Path) -> Path:
    path = tmp_path / "none.npy"
    write_keys(path, np.empty(0, dtype=np.uint64))
    return path


def test_by_hand(make_text: MakeText, no_frequent: Path) -> None:
    # One window of 8 targets; the copier is right about the two AR-Hits, 2 after 1 and 3 after 2,
    # and elsewhere says 0, which is right once: at the document's end.
    dataset = make_text([[1, 2, 3, 4, 1, 2, 3, 5, 0]])
    copier = scorer(Scripted(copy_what_followed, VOCAB))
    metrics = run(copier, dataset, no_frequent)
    right = math.log(1 + (VOCAB - 1) * math.exp(-20))
    wrong = 20 + right
    assert metrics["tokens"] == 8
    assert metrics["ar_hit_tokens"] == 2
    assert metrics["ar_hit_share"] == 0.25
    assert metrics["ar_hit_loss"] == pytest.approx(right, abs=1e-6)
    assert metrics["others_loss"] == pytest.approx((5 * wrong + right) / 6, rel=1e-6)
    assert metrics["loss"] == pytest.approx((5 * wrong + 3 * right) / 8, rel=1e-6)


def test_uniform_model_has_the_entropy_of_the_vocabulary(text: Path, ngrams: Path) -> None:
    metrics = run(scorer(Uniform(VOCAB)), PackedDataset.open(text), ngrams)
    for name in ("loss", "ar_hit_loss", "others_loss"):
        assert metrics[name] == pytest.approx(math.log(VOCAB), rel=1e-6)
    assert metrics["perplexity"] == pytest.approx(VOCAB, rel=1e-5)


def test_loss_is_the_share_weighted_mean_of_the_slices(
    text: Path, ngrams: Path, text_run: Path
) -> None:
    metrics = run(scorer(load_model(text_run)), PackedDataset.open(text), ngrams)
    share = metrics["ar_hit_share"]
    assert 0 < share < 1
    mean = share * metrics["ar_hit_loss"] + (1 - share) * metrics["others_loss"]
    assert metrics["loss"] == pytest.approx(mean, rel=1e-12)
    assert metrics["tokens"] == metrics["ar_hit_tokens"] + metrics["others_tokens"]
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]))


def test_frequent_ngrams_move_tokens_to_others(text: Path, ngrams: Path, no_frequent: Path) -> None:
    model, dataset = scorer(Uniform(VOCAB)), PackedDataset.open(text)
    without = run(model, dataset, no_frequent)
    excluded = run(model, dataset, ngrams)
    assert excluded["ar_hit_tokens"] < without["ar_hit_tokens"]
    assert excluded["tokens"] == without["tokens"]


@pytest.mark.parametrize("changes", [{"batch_size": 1}, {"batch_size": 7}, {"loss_chunk": 5}])
def test_batching_does_not_matter(
    text: Path, ngrams: Path, text_run: Path, changes: dict[str, int]
) -> None:
    model, dataset = scorer(load_model(text_run)), PackedDataset.open(text)
    expected = run(model, dataset, ngrams)
    metrics = run(model, dataset, ngrams, **changes)
    assert metrics == pytest.approx(expected, rel=1e-6)


def test_repeats_are_bit_identical(text: Path, ngrams: Path, text_run: Path) -> None:
    model, dataset = scorer(load_model(text_run)), PackedDataset.open(text)
    assert run(model, dataset, ngrams) == run(model, dataset, ngrams)


def test_max_tokens_takes_whole_windows(text: Path, ngrams: Path) -> None:
    dataset = PackedDataset.open(text)
    metrics = run(scorer(Uniform(VOCAB)), dataset, ngrams, max_tokens=20)
    assert (metrics["tokens"], metrics["windows"]) == (16, 2)


def test_windows_across_documents_are_counted(make_text: MakeText, no_frequent: Path) -> None:
    # Windows of 5 tokens start at 0, 4 and 8; documents end at 5, 6 and 13: only the second
    # window holds tokens of several.
    dataset = make_text([[1, 2, 3, 4, 0], [0], [5, 6, 7, 8, 1, 2, 0]])
    metrics = run(scorer(Uniform(VOCAB)), dataset, no_frequent, seq_len=4)
    assert (metrics["windows"], metrics["windows_across_documents"]) == (3, 1)


def test_slice_without_tokens_has_no_loss(make_text: MakeText, no_frequent: Path) -> None:
    dataset = make_text([[1, 2, 3, 4, 5, 6, 7, 8, 9]])
    metrics = run(scorer(Uniform(VOCAB)), dataset, no_frequent)
    assert metrics["ar_hit_loss"] is None
    assert metrics["ar_hit_share"] == 0
    assert metrics["others_loss"] == metrics["loss"]


def test_rows_of_a_recall_dataset_are_windows(recall: Path, no_frequent: Path) -> None:
    dataset = PackedDataset.open(recall)
    model = scorer(Uniform(dataset.manifest.vocab_size))
    metrics = run(model, dataset, no_frequent, seq_len=32)
    assert (metrics["windows"], metrics["windows_across_documents"]) == (12, 0)


def test_without_ngrams(text: Path) -> None:
    with pytest.raises(ConfigError, match="count_ngrams"):
        measure(suite(), eval_context(scorer(Uniform(VOCAB)), PackedDataset.open(text)))


def test_validation_split_shorter_than_a_window(make_text: MakeText, no_frequent: Path) -> None:
    with pytest.raises(DataError, match="shorter than one window"):
        measure(suite(), eval_context(scorer(Uniform(VOCAB)), make_text([[1, 2, 0]]), no_frequent))
