"""Cumulative loss by position, against a loop over single targets."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_evaluation import VOCAB, Uniform, eval_context, metrics_of, scorer, sizes

from difftransformer.convert.checkpoint import load_model
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError, DataError
from difftransformer.evaluation.context import EvalContext
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluations.nll_by_position.measure import CURVES, measure
from difftransformer.evaluations.nll_by_position.settings import Suite

MakeText = Callable[..., PackedDataset]


def suite(**changes: Any) -> Suite:
    defaults = {"length": 32, "first_position": 4, "num_positions": 5}
    return Suite(kind="nll_by_position", **(defaults | changes))


@pytest.fixture
def make_context(tmp_path: Path) -> Callable[[Scorer, PackedDataset], EvalContext]:
    def make(model: Scorer, dataset: PackedDataset) -> EvalContext:
        context = eval_context(model, dataset)
        (tmp_path / "details").mkdir(exist_ok=True)
        return EvalContext(**(vars(context) | {"details": tmp_path / "details"}))

    return make


def test_numbers_are_those_of_a_naive_loop(text: Path, text_run: Path, make_context: Any) -> None:
    dataset, model = PackedDataset.open(text), load_model(text_run)
    metrics = metrics_of(measure(suite(batch_size=5), make_context(scorer(model), dataset)))
    split = dataset.split("validation")
    ends = split.document_ends().tolist()
    by_document = []
    for start, end in zip([0, *ends], ends, strict=False):
        document = torch.tensor(split.tokens[start:end].astype(np.int64))
        if len(document) <= 32:
            continue
        losses = []
        for t in range(32):
            with torch.no_grad():
                logits = model(document[None, : t + 1])[0, -1].double()
            losses.append(float(logits.logsumexp(0) - logits[document[t + 1]]))
        by_document.append(losses)
    assert metrics["documents"] == len(by_document) == 12
    assert metrics["tokens"] == 12 * 32
    for position in suite().positions:
        means = [sum(losses[:position]) / position for losses in by_document]
        assert metrics[f"nll_p{position}"] == pytest.approx(sum(means) / 12, abs=1e-5)
    assert metrics["loss"] == metrics["nll_p32"]


def test_curves_agree_with_the_metrics(text: Path, text_run: Path, make_context: Any) -> None:
    context = make_context(scorer(load_model(text_run)), PackedDataset.open(text))
    metrics = metrics_of(measure(suite(max_documents=7), context))
    curves = np.load(context.details / CURVES)
    assert metrics["documents"] == 7
    assert curves["nll"].shape == curves["cumulative"].shape == (32,)
    assert curves["by_document"].shape == (7, len(suite().positions))
    assert curves["positions"].tolist() == suite().positions
    np.testing.assert_allclose(
        curves["by_document"].mean(0),
        [metrics[f"nll_p{position}"] for position in suite().positions],
    )
    np.testing.assert_allclose(curves["nll"].mean(), metrics["loss"])


def test_short_documents_are_left_out_and_long_ones_cut(
    make_text: MakeText, make_context: Any
) -> None:
    documents = [[1] * 8 + [0], [1] * 31 + [0], [2] * 32 + [0], [3] * 60 + [0]]
    context = make_context(scorer(Uniform(VOCAB)), make_text(documents))
    metrics = metrics_of(measure(suite(), context))
    assert metrics["documents"] == 2
    assert np.load(context.details / CURVES)["starts"].tolist() == [41, 74]
    for position in suite().positions:
        assert metrics[f"nll_p{position}"] == pytest.approx(math.log(VOCAB), rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "positions"),
    [
        ({}, [4, 7, 11, 19, 32]),
        ({"length": 512, "first_position": 16, "num_positions": 6}, [16, 32, 64, 128, 256, 512]),
        ({"length": 8, "first_position": 6, "num_positions": 9}, [6, 7, 8]),
        ({"length": 65536, "first_position": 100, "num_positions": 2}, [100, 65536]),
    ],
)
def test_positions_are_log_spaced(settings: Any, positions: list[int]) -> None:
    assert suite(**settings).positions == positions


def test_bad_input_gives_a_one_line_error(
    make_text: MakeText, recall: Path, make_context: Any
) -> None:
    uniform = scorer(Uniform(VOCAB))
    short = make_text([[1] * 20 + [0], [1] * 9 + [0]])
    for dataset, error_class, message in (
        (short, DataError, "more than 32 tokens, the longest has 21: lower"),
        (PackedDataset.open(recall), ConfigError, "has generated rows"),
    ):
        with pytest.raises(error_class, match=message) as error:
            measure(suite(), make_context(uniform, dataset))
        assert "\n" not in str(error.value)
    assert suite().incompatibility(31, None) == "length 32 is longer than its max_positions 31"


def test_losses_have_scores_by_document(text: Path, text_run: Path, make_context: Any) -> None:
    context = make_context(scorer(load_model(text_run)), PackedDataset.open(text))
    metrics = measure(suite(max_documents=7), context)
    assert {*metrics.per_item} == {*metrics.metrics} - {"documents", "tokens"}
    assert {*map(tuple, map(sizes, metrics.per_item.values()))} == {(("", 7),)}
    assert metrics.per_item["loss"] == metrics.per_item["nll_p32"] != metrics.per_item["nll_p4"]
