"""Shares of the first token on given rows of weights, and on a model with uniform attention."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_evaluation import VOCAB, eval_context, metrics_of, model_config, scorer, sizes

from difftransformer.data.packed import PackedDataset
from difftransformer.evaluations.sinks.measure import first_token, measure
from difftransformer.evaluations.sinks.settings import Suite
from difftransformer.models.transformer import Transformer


def suite(**changes: Any) -> Suite:
    settings = {"seq_len": 16, "batch_size": 3, "first_query": 5}
    return Suite(kind="sinks", **(settings | changes))


def test_shares_of_signed_rows_and_of_rows_that_do_not_sum_to_one() -> None:
    rows = torch.tensor([[0.5, -0.5, 1.0], [0.1, 0.1, 0.0], [0.0, 0.0, 0.0], [-0.3, 0.0, 0.0]])
    share, weight, mass = first_token(rows[None, None])[:, 0, 0]
    assert share.tolist() == pytest.approx([0.25, 0.5, 0.0, 1.0])
    assert weight.tolist() == pytest.approx([0.5, 0.1, 0.0, 0.3])
    assert mass.tolist() == pytest.approx([2.0, 0.2, 0.0, 0.3])


@pytest.mark.parametrize("variant", ["softmax", "diff_v1", "diff_v2"])
def test_uniform_attention_has_the_uniform_share(text: Path, variant: str) -> None:
    config = replace(model_config(VOCAB), attention={"variant": variant, "head_dim": 4})
    model = Transformer.build(config, "sdpa", 0)
    with torch.no_grad():
        for layer in model.layers:
            layer.attention.qkv_proj.weight.zero_()  # every logit is 0
    metrics = metrics_of(measure(suite(), eval_context(scorer(model), PackedDataset.open(text))))
    expected = sum(1 / n for n in range(5, 17)) / 12
    assert metrics["uniform"] == pytest.approx(expected)
    assert metrics["share"] == metrics["share_l0"] == pytest.approx(expected, rel=1e-5)
    assert metrics["sink_heads"] == 0
    if variant == "softmax":
        assert metrics["mass"] == pytest.approx(1)
        assert metrics["weight"] == pytest.approx(expected, rel=1e-5)


def test_sink_heads_are_those_above_the_threshold(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(model_config(VOCAB), attention={"variant": "softmax", "head_dim": 4})
    context = eval_context(scorer(Transformer.build(config, "sdpa", 0)), PackedDataset.open(text))
    share = metrics_of(measure(suite(batch_size=1), context))["share"]
    assert 0 < share < 1
    for threshold, heads in ((1e-6, 1), (0.999, 0)):
        monkeypatch.setattr(f"{measure.__module__}.THRESHOLD", threshold)
        assert metrics_of(measure(suite(), context))["sink_heads"] == heads
    assert metrics_of(measure(suite(), context))["share"] == pytest.approx(share)


def test_shares_have_values_by_window(text: Path) -> None:
    model = scorer(Transformer.build(model_config(VOCAB), "sdpa", 0))
    result = measure(suite(), eval_context(model, PackedDataset.open(text)))
    assert {*result.per_item} == {"share", "weight", "mass"}
    assert sizes(result.per_item["share"]) == [("", int(result.metrics["tokens"] or 0) // 16)]
    assert len(set(result.per_item["share"].terms[0].values)) > 1
