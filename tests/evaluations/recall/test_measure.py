"""Scripted models get the accuracy they were written for."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_evaluation import (
    RECALL,
    Scripted,
    Uniform,
    copy_what_followed,
    eval_context,
    metrics_of,
    scorer,
    sizes,
)
from torch import Tensor

from difftransformer.convert.checkpoint import load_model
from difftransformer.data.packed import PackedDataset
from difftransformer.data.recall import RecallVocabulary
from difftransformer.errors import DataError
from difftransformer.evaluations.recall.measure import measure
from difftransformer.evaluations.recall.settings import Suite

VALUES = RecallVocabulary.of(RECALL).values


def suite(**changes: Any) -> Suite:
    return Suite(kind="recall", **({"needles": [1, 2, 4], "samples": 24} | changes))


def first_value(tokens: Tensor) -> Tensor:
    """Always the value that stands first in the row: a guess among those present."""
    is_value = tokens >= VALUES.start
    index = is_value.int().argmax(dim=1, keepdim=True)
    return tokens.gather(1, index).expand_as(tokens)


@pytest.fixture
def dataset(recall: Path) -> PackedDataset:
    return PackedDataset.open(recall)


def test_model_that_answers_right(dataset: PackedDataset) -> None:
    model = scorer(Scripted(copy_what_followed, RECALL.vocab_size))
    metrics = metrics_of(measure(suite(), eval_context(model, dataset)))
    for needles in (1, 2, 4):
        assert metrics[f"accuracy_n{needles}"] == 1.0
        assert metrics[f"correct_n{needles}"] == metrics[f"total_n{needles}"] == 48
        assert metrics[f"chance_n{needles}"] == 1 / needles
    assert metrics["chance_vocabulary"] == 1 / RECALL.vocab_size


def test_guess_among_the_values_present_is_at_chance(dataset: PackedDataset) -> None:
    model = scorer(Scripted(first_value, RECALL.vocab_size))
    metrics = metrics_of(measure(suite(samples=600), eval_context(model, dataset)))
    assert metrics["accuracy_n1"] == 1.0
    for needles in (2, 4):
        assert metrics[f"accuracy_n{needles}"] == pytest.approx(1 / needles, abs=0.06)


def test_every_model_answers_the_same_questions(dataset: PackedDataset) -> None:
    batches: list[Tensor] = []

    def rule(tokens: Tensor) -> Tensor:
        batches.append(tokens)
        return tokens

    for _ in range(2):
        measure(suite(), eval_context(scorer(Scripted(rule, RECALL.vocab_size)), dataset))
    first, second = batches[: len(batches) // 2], batches[len(batches) // 2 :]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    trained_on = dataset.split("train").tokens[:].reshape(-1, RECALL.row_length)
    haystacks = {tuple(row[: RECALL.haystack_length]) for row in trained_on.tolist()}
    for rows in batches:
        assert not haystacks & {tuple(r[: RECALL.haystack_length]) for r in rows.tolist()}


@pytest.mark.parametrize("batch_size", [1, 5, 1000])
def test_batch_size_does_not_matter(
    dataset: PackedDataset, recall_run: Path, batch_size: int
) -> None:
    model = scorer(load_model(recall_run))
    metrics = metrics_of(measure(suite(batch_size=batch_size), eval_context(model, dataset)))
    assert metrics == metrics_of(measure(suite(), eval_context(model, dataset)))


def test_length_of_the_haystack_is_a_setting(dataset: PackedDataset) -> None:
    lengths: list[int] = []

    def rule(tokens: Tensor) -> Tensor:
        lengths.append(tokens.shape[1])
        return copy_what_followed(tokens)

    model = scorer(Scripted(rule, RECALL.vocab_size))
    metrics = metrics_of(
        measure(suite(haystack_length=30, queries=3), eval_context(model, dataset))
    )
    assert set(lengths) == {35}
    assert metrics["accuracy_n4"] == 1.0
    assert metrics["total_n4"] == 72


def test_needles_that_do_not_fit(dataset: PackedDataset) -> None:
    with pytest.raises(DataError, match=r"9 needles, .*1 to 8 fit") as error:
        measure(suite(needles=[9]), eval_context(scorer(Uniform(RECALL.vocab_size)), dataset))
    assert "\n" not in str(error.value)


def test_incompatible_models_and_datasets_are_refused_before_any_job() -> None:
    settings = suite(haystack_length=40)
    assert settings.incompatibility(43, RECALL) is None
    assert "rows of 43 positions are longer than its max_positions 42" in str(
        settings.incompatibility(42, RECALL)
    )
    assert "the dataset has no recall rows" in str(settings.incompatibility(43, None))


def test_accuracies_have_scores_by_row_of_each_number_of_needles(
    dataset: PackedDataset, recall_run: Path
) -> None:
    result = measure(suite(), eval_context(scorer(load_model(recall_run)), dataset))
    assert {name: sizes(scores) for name, scores in result.per_item.items()} == {
        f"accuracy_n{n}": [(f"n{n}", 24)] for n in (1, 2, 4)
    }
