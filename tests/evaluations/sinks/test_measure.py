"""Shares of the first token on rows of weights made by hand, and on a model of known attention."""

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
    known = {"seq_len": 16, "batch_size": 3, "first_query": 5}
    return Suite(kind="sinks", **(known | changes))


def test_signed_and_short_rows_compare() -> None:
    rows = torch.tensor([[0.5, -0.5, 1.0], [0.1, 0.1, 0.0], [0.0, 0.0, 0.0], [-0.3, 0.0, 0.0]])
    share, weight, mass = first_token(rows[None, None])[:, 0, 0]
    assert share.tolist() == pytest.approx([0.25, 0.5, 0.0, 1.0])
    assert weight.tolist() == pytest.approx([0.5, 0.1, 0.0, 0.3])
    assert mass.tolist() == pytest.approx([2.0, 0.2, 0.0, 0.3])


@pytest.mark.parametrize("variant", ["softmax", "diff_v1", "diff_v2"])
def test_equal_weights_give_the_uniform_share(text: Path, variant: str) -> None:
    config = replace(model_config(VOCAB), attention={"variant": variant, "head_dim": 4})
    model = Transformer.build(config, "sdpa", 0)
    with torch.no_grad():
        for layer in model.layers:
            layer.attention.qkv_proj.weight.zero_()  # every logit is 0
    found = metrics_of(measure(suite(), eval_context(scorer(model), PackedDataset.open(text))))
    expected = sum(1 / n for n in range(5, 17)) / 12
    assert found["uniform"] == pytest.approx(expected)
    assert found["share"] == found["share_l0"] == pytest.approx(expected, rel=1e-5)
    assert found["sink_heads"] == 0
    if variant == "softmax":
        assert found["mass"] == pytest.approx(1)
        assert found["weight"] == pytest.approx(expected, rel=1e-5)


def test_sink_heads_are_those_above_the_threshold(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(model_config(VOCAB), attention={"variant": "softmax", "head_dim": 4})
    found = eval_context(scorer(Transformer.build(config, "sdpa", 0)), PackedDataset.open(text))
    share = metrics_of(measure(suite(batch_size=1), found))["share"]
    assert 0 < share < 1
    for threshold, heads in ((1e-6, 1), (0.999, 0)):
        monkeypatch.setattr(f"{measure.__module__}.THRESHOLD", threshold)
        assert metrics_of(measure(suite(), found))["sink_heads"] == heads
    assert metrics_of(measure(suite(), found))["share"] == pytest.approx(share)


def test_shares_are_known_by_window(text: Path) -> None:
    model = scorer(Transformer.build(model_config(VOCAB), "sdpa", 0))
    found = measure(suite(), eval_context(model, PackedDataset.open(text)))
    assert {*found.per_item} == {"share", "weight", "mass"}
    assert sizes(found.per_item["share"]) == [("", int(found.metrics["tokens"] or 0) // 16)]
    assert len(set(found.per_item["share"].terms[0].values)) > 1
