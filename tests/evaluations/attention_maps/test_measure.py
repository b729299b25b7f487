"""Attention maps of small models against slow forms, for every variant of the registry."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from scipy.spatial.distance import cosine, jensenshannon
from scipy.special import softmax
from scipy.stats import entropy, pearsonr, spearmanr
from small_evaluation import VOCAB, eval_context, metrics_of, model_config, scorer, sizes

from difftransformer.data.packed import PackedDataset
from difftransformer.evaluation.attention_capture import iter_attention_blocks
from difftransformer.evaluation.context import EvalContext, validation_inputs
from difftransformer.evaluations.attention_maps.measure import measure
from difftransformer.evaluations.attention_maps.settings import BY_LAYER, DETAILS, Suite
from difftransformer.models.attention.registry import variants
from difftransformer.models.config import layer_metric
from difftransformer.models.transformer import Transformer

LAYERS = 2


def suite(**changes: Any) -> Suite:
    known = {
        "seq_len": 32, "batch_size": 2, "max_tokens": 96, "top_share": 0.2, "first_query": 14,
        "block": 5,
    }  # fmt: skip
    return Suite(kind="attention_maps", **(known | changes))


def context_of(text: Path, tmp_path: Path, variant: str, **attention: Any) -> EvalContext:
    config = replace(
        model_config(VOCAB),
        attention={"variant": variant, "head_dim": 4} | attention,
        num_layers=LAYERS,
    )
    model = Transformer.build(config, "sdpa", 0).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "qkv_proj" in name or "base_proj" in name:
                weight.mul_(3)  # far from uniform
    return replace(eval_context(scorer(model), PackedDataset.open(text)), details=tmp_path)


def slow(asked: Suite, one: EvalContext) -> dict[str, float]:
    """Every metric by loops over rows in numpy and scipy; whole maps, one window at a time."""
    values: dict[str, list[float]] = defaultdict(list)
    windows = validation_inputs(asked.model_copy(update={"batch_size": 1}), one)
    for number, window in enumerate(windows):
        (block,) = iter_attention_blocks(one.scorer, window, asked.seq_len)
        maps = []
        for layer, rows in enumerate(block):

            def add(name: str, found: float, layer: int = layer) -> None:
                if not np.isnan(found):
                    values[name].append(found)
                    values[layer_metric(name, layer)].append(found)

            maps += [*rows.weights[0].double().numpy()]
            for h in range(rows.weights.shape[1]):
                for i in range(asked.seq_len):
                    _slow_row(asked, rows, number, h, i, add)
            heads = maps[-rows.weights.shape[1] :]
            for h, mine in enumerate(heads):
                for other in heads[:h]:
                    add("distance", cosine(mine.ravel(), other.ravel()))
        for h, mine in enumerate(maps):
            for other in maps[:h]:
                values["distance_all"].append(cosine(mine.ravel(), other.ravel()))
    return {name: float(np.mean(found)) for name, found in values.items()}


def _slow_noise(place: int) -> int:
    """SplitMix64 in whole numbers."""
    z = place * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    z ^= z >> 31
    return z - 2**64 if z >= 2**63 else z


def _slow_alike(x: Any, y: Any, first_place: int) -> Any:
    """Another y about the same line over x, by logarithms."""
    if not (x > 0).all() or not (y > 0).all() or not np.ptp(x):
        return np.full_like(y, np.nan)
    line = np.polynomial.Polynomial.fit(np.log(x), np.log(y), 1)(np.log(x))
    order = sorted(range(len(x)), key=lambda key: _slow_noise(first_place + key))
    return softmax(line + (np.log(y) - line)[order])


def _slow_row(asked: Suite, rows: Any, window: int, h: int, i: int, add: Any) -> None:
    row = rows.weights[0, h, i, : i + 1].double().numpy()
    for weight in row:
        add("below_1e4", float(abs(weight) < 1e-4))
        add("below_1e6", float(abs(weight) < 1e-6))
        add("negative_share", float(weight < 0))
        if weight:
            add("positive_size" if weight > 0 else "negative_size", abs(weight))
    add("entropy", entropy(abs(row)) if row.any() else 0.0)
    if rows.component_maps is None:
        return
    pair = [one[0, h, i, : i + 1].double().numpy() for one in rows.component_maps]
    for name, one in zip(("entropy_first", "entropy_second"), pair, strict=True):
        for metric in (name, "entropy_maps"):
            add(metric, entropy(one) if one.any() else 0.0)
    if i + 1 < asked.first_query:
        return
    heads = rows.weights.shape[1]
    head = (rows.layer * 2**20 + window) * heads + h
    drawn = _slow_alike(*pair, (head * asked.seq_len + i) * asked.seq_len)
    number = int(np.ceil(round(asked.top_share * (i + 1), 9)))
    for end, x, y in (("", *pair), ("_alike", pair[0], drawn)):
        top = np.argsort(-x, kind="stable")[:number]
        _slow_agreement(f"all{end}", x, y, add)
        _slow_agreement(f"top{end}", x[top], y[top], add)


def _slow_agreement(part: str, x: Any, y: Any, add: Any) -> None:
    varies = np.ptp(x) > 0 and np.ptp(y) > 0
    add(f"rank_{part}", spearmanr(x, y).statistic if varies else np.nan)
    add(f"pearson_{part}", pearsonr(x, y).statistic if varies else np.nan)
    add(f"js_{part}", jensenshannon(x, y) ** 2 if x.any() and y.any() else np.nan)
    add(f"cosine_{part}", cosine(x, y) if x.any() and y.any() else np.nan)


CASES = [(variant, {}) for variant in variants()] + [
    ("diff_v2", {"pairing": "across_groups", "num_kv_heads": 2}),
    ("diff_v2", {"lambda_form": "none"}),
    ("diff_v1", {"lambda_fixed": 0.4}),
]


@pytest.mark.parametrize(("variant", "attention"), CASES)
def test_every_variant_is_as_the_slow_form_has_it(
    text: Path, tmp_path: Path, variant: str, attention: dict[str, Any]
) -> None:
    own = {"beta": 0.3} if variant == "tda" else {}  # at d of 4 the full one lets nothing pass
    one = context_of(text, tmp_path, variant, **own, **attention)
    found = metrics_of(measure(suite(), one))
    expected = slow(suite(), one)
    for name, value in found.items():
        if name != "tokens":
            wanted = expected.get(name)
            assert value == (None if wanted is None else pytest.approx(wanted, rel=1e-4, abs=1e-7))
    layer = one.scorer.model.layers[0].attention
    paired = layer.num_queries > layer.num_heads
    assert (found["rank_top"] is not None) == (found["entropy_maps"] is not None) == paired


@pytest.mark.parametrize("variant", variants())
def test_blocks_and_batches_change_nothing(text: Path, tmp_path: Path, variant: str) -> None:
    one = context_of(text, tmp_path, variant)
    expected = metrics_of(measure(suite(), one))
    matrix = load_file(tmp_path / DETAILS)["distance"]
    for changes in ({"block": 32}, {"block": 1}, {"batch_size": 3}):
        found = metrics_of(measure(suite(**changes), one))
        assert found == {
            name: value if value is None else pytest.approx(value, rel=1e-4, abs=1e-6)
            for name, value in expected.items()
        }
        other = load_file(tmp_path / DETAILS)["distance"]
        torch.testing.assert_close(other, matrix, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_the_matrix_of_heads_goes_over_layers(text: Path, tmp_path: Path) -> None:
    one = context_of(text, tmp_path, "softmax")
    found = metrics_of(measure(suite(), one))
    matrix = load_file(tmp_path / DETAILS)["distance"]
    heads = one.scorer.model.config.attention.num_heads
    assert matrix.shape == (LAYERS * heads, LAYERS * heads) and matrix.dtype == torch.float64
    torch.testing.assert_close(matrix, matrix.T)
    torch.testing.assert_close(matrix.diagonal(), torch.zeros(LAYERS * heads).double())
    above = torch.triu_indices(heads, heads, offset=1)
    for layer in range(LAYERS):
        own = matrix[layer * heads :, layer * heads :][:heads, :heads]
        assert found[layer_metric("distance", layer)] == pytest.approx(
            float(own[above[0], above[1]].mean())
        )


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_kept_rows_are_means_over_heads(
    text: Path, tmp_path: Path, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{measure.__module__}.KEPT_WINDOWS", 2)
    monkeypatch.setattr(f"{measure.__module__}.KEPT_QUERIES", 3)
    one = context_of(text, tmp_path, "diff_v1")
    measure(suite(block=7, batch_size=batch_size), one)
    kept = load_file(tmp_path / DETAILS)
    assert kept["queries"].tolist() == [13, 22, 31]
    tokens = torch.cat(list(validation_inputs(suite(), one)))[:2]
    (block,) = iter_attention_blocks(one.scorer, tokens, 32)
    for layer, rows in enumerate(block):
        for place, query in enumerate(kept["queries"].tolist()):
            for name, weights in (("signed", rows.weights), ("absolute", rows.weights.abs())):
                expected = weights[:, :, query].mean(1)
                torch.testing.assert_close(kept[name][:, layer, place], expected)


def test_heads_that_look_at_the_same_are_not_apart(text: Path, tmp_path: Path) -> None:
    one = context_of(text, tmp_path, "softmax")
    heads = one.scorer.model.config.attention.num_heads
    with torch.no_grad():
        for layer in one.scorer.model.layers:
            rows = layer.attention.qkv_proj.weight.view(3, heads, 4, -1)
            rows[:2, 1:] = rows[:2, :1]
    found = metrics_of(measure(suite(), one))
    for layer in range(LAYERS):
        assert found[layer_metric("distance", layer)] == pytest.approx(0, abs=1e-12)
    assert found["distance_all"] > 1e-3


def test_a_single_head_is_apart_from_none(text: Path, tmp_path: Path) -> None:
    found = measure(suite(), context_of(text, tmp_path, "softmax", num_heads=1))
    assert found.metrics["distance"] is None and "distance" not in found.per_item
    assert found.metrics["distance_all"] is not None


def test_numbers_are_known_by_window(text: Path, tmp_path: Path) -> None:
    found = measure(suite(), context_of(text, tmp_path, "diff_v1"))
    assert {*found.per_item} == {*BY_LAYER, "distance_all"}
    for name, per_item in found.per_item.items():
        assert sizes(per_item) == [("", 3)], name
        total = sum(per_item.terms[0].values) / sum(per_item.terms[0].weights or ())
        assert total == pytest.approx(found.metrics[name])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"first_query": 33}, "first_query 33 is beyond seq_len 32"),
        ({"top_share": 0.05}, "first_query 14 has 1 salient tokens by top_share 0.05"),
    ],
)
def test_settings_that_leave_nothing_to_compare(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        suite(**changes)


def test_damaged_weights_show(text: Path, tmp_path: Path) -> None:
    one = context_of(text, tmp_path, "diff_v1")
    with torch.no_grad():
        one.scorer.model.layers[0].attention.qkv_proj.weight.fill_(torch.nan)
    assert np.isnan(measure(suite(), one).metrics["entropy"])
