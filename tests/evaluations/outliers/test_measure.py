"""Metrics equal torch's topk and median over all activations of a small model."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_evaluation import eval_context, model_config, scorer

from difftransformer.convert.checkpoint import load_model
from difftransformer.data.loader import sequential_windows
from difftransformer.data.packed import PackedDataset
from difftransformer.evaluation.context import EvalContext
from difftransformer.evaluations.outliers.magnitudes import MEDIAN_ERROR
from difftransformer.evaluations.outliers.measure import measure
from difftransformer.evaluations.outliers.settings import HISTOGRAMS, Suite
from difftransformer.models.transformer import Transformer


def suite(**changes: Any) -> Suite:
    return Suite(kind="outliers", **({"seq_len": 16, "batch_size": 3} | changes))


@pytest.fixture
def measured(text: Path, text_run: Path, tmp_path: Path) -> EvalContext:
    model = scorer(load_model(text_run, "eager"))
    context = eval_context(model, PackedDataset.open(text))
    return EvalContext(**(vars(context) | {"details": tmp_path}))


def everything(measured: EvalContext) -> dict[str, torch.Tensor]:
    """Return all logits and layer outputs, computed by hand from the layers' parts."""
    model = measured.scorer.model
    assert isinstance(model, Transformer)
    logits, states = [], []
    seen = torch.ones(16, 16, dtype=torch.bool).tril()
    windows = sequential_windows(measured.dataset, "validation", seq_len=16, batch_size=1)
    for window in windows:
        x = model.embedding(window[:, :-1])
        rope = model._rotary.span(0, 16, x.device)
        for layer in model.layers:
            q, k, *_ = layer.attention.project(layer.attention_norm(x), rope)
            scores = q @ k.transpose(2, 3) * layer.attention.head_dim**-0.5
            logits.append(scores[..., seen].flatten())
            x = layer(x, rope, None, None)
            states.append(x.flatten())
    return {"attention_logits": torch.cat(logits).abs(), "hidden_states": torch.cat(states).abs()}


@torch.no_grad()
def test_metrics_equal_those_of_all_activations(measured: EvalContext) -> None:
    metrics = measure(suite(), measured)
    for kind, values in everything(measured).items():
        top = values.topk(10).values
        assert metrics[f"{kind}_top1"] == pytest.approx(float(top[0]), rel=1e-5)
        assert metrics[f"{kind}_top10"] == pytest.approx(float(top[9]), rel=1e-5)
        median = float(values.median())
        assert metrics[f"{kind}_median"] == pytest.approx(median, rel=1.01 * MEDIAN_ERROR)
        assert metrics[f"{kind}_values"] == len(values)
    counts = json.loads((measured.details / HISTOGRAMS).read_text())["hidden_states"]["counts"]
    assert sum(counts) == metrics["hidden_states_values"]


def test_hooks_change_nothing_and_are_removed(measured: EvalContext) -> None:
    tokens = torch.arange(16)[None] % 8
    before = measured.scorer.hidden_states(tokens)
    first = measure(suite(), measured)
    assert torch.equal(measured.scorer.hidden_states(tokens), before)
    assert measure(suite(batch_size=1), measured)["tokens"] == first["tokens"]


def test_logits_without_softmax_are_not_counted(text: Path, tmp_path: Path) -> None:
    dataset = PackedDataset.open(text)
    config = model_config(dataset.manifest.vocab_size)
    attention = {"variant": "tda", "head_dim": 4}
    model = Transformer.build(replace(config, attention=attention), "eager", 0)
    context = replace(eval_context(scorer(model), dataset), details=tmp_path)
    metrics = measure(suite(), context)
    assert metrics["attention_logits_values"] == 0
    assert metrics["attention_logits_top1"] is None
