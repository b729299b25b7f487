"""Attention maps of small models against loops, for every registered variant."""

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
    settings = {
        "seq_len": 32, "batch_size": 2, "max_tokens": 96, "top_fraction": 0.2, "first_query": 14,
        "block": 5,
    }  # fmt: skip
    return Suite(kind="attention_maps", **(settings | changes))


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


def slow(settings: Suite, context: EvalContext) -> dict[str, float]:
    """Return every metric by loops over rows in numpy and scipy, one window at a time."""
    values: dict[str, list[float]] = defaultdict(list)
    windows = validation_inputs(settings.model_copy(update={"batch_size": 1}), context)
    for number, window in enumerate(windows):
        (block,) = iter_attention_blocks(context.scorer, window, settings.seq_len)
        maps = []
        for layer, rows in enumerate(block):

            def add(name: str, value: float, layer: int = layer) -> None:
                if not np.isnan(value):
                    values[name].append(value)
                    values[layer_metric(name, layer)].append(value)

            maps += [*rows.weights[0].double().numpy()]
            for h in range(rows.weights.shape[1]):
                for i in range(settings.seq_len):
                    _slow_row(settings, rows, number, h, i, add)
            heads = maps[-rows.weights.shape[1] :]
            for h, mine in enumerate(heads):
                for other in heads[:h]:
                    add("distance", cosine(mine.ravel(), other.ravel()))
        for h, mine in enumerate(maps):
            for other in maps[:h]:
                values["distance_all"].append(cosine(mine.ravel(), other.ravel()))
    return {name: float(np.mean(numbers)) for name, numbers in values.items()}


def _splitmix64(counter: int) -> int:
    z = counter * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    z ^= z >> 31
    return z - 2**64 if z >= 2**63 else z


def _slow_surrogate(x: Any, y: Any, first_counter: int) -> Any:
    """Permute the residuals of log y about its line over log x."""
    if not (x > 0).all() or not (y > 0).all() or not np.ptp(x):
        return np.full_like(y, np.nan)
    line = np.polynomial.Polynomial.fit(np.log(x), np.log(y), 1)(np.log(x))
    order = sorted(range(len(x)), key=lambda key: _splitmix64(first_counter + key))
    return softmax(line + (np.log(y) - line)[order])


def _slow_row(settings: Suite, rows: Any, window: int, h: int, i: int, add: Any) -> None:
    row = rows.weights[0, h, i, : i + 1].double().numpy()
    for weight in row:
        add("below_1e4", float(abs(weight) < 1e-4))
        add("below_1e6", float(abs(weight) < 1e-6))
        add("negative_fraction", float(weight < 0))
        if weight:
            add("positive_magnitude" if weight > 0 else "negative_magnitude", abs(weight))
    add("entropy", entropy(abs(row)) if row.any() else 0.0)
    if rows.component_maps is None:
        return
    pair = [maps[0, h, i, : i + 1].double().numpy() for maps in rows.component_maps]
    for name, values in zip(("entropy_first", "entropy_second"), pair, strict=True):
        for metric in (name, "entropy_maps"):
            add(metric, entropy(values) if values.any() else 0.0)
    if i + 1 < settings.first_query:
        return
    heads = rows.weights.shape[1]
    head = (rows.layer * 2**20 + window) * heads + h
    surrogate = _slow_surrogate(*pair, (head * settings.seq_len + i) * settings.seq_len)
    number = int(np.ceil(round(settings.top_fraction * (i + 1), 9)))
    for end, x, y in (("", *pair), ("_surrogate", pair[0], surrogate)):
        top = np.argsort(-x, kind="stable")[:number]
        _slow_similarity(f"all{end}", x, y, add)
        _slow_similarity(f"top{end}", x[top], y[top], add)


def _slow_similarity(part: str, x: Any, y: Any, add: Any) -> None:
    varies = np.ptp(x) > 0 and np.ptp(y) > 0
    add(f"spearman_{part}", spearmanr(x, y).statistic if varies else np.nan)
    add(f"pearson_{part}", pearsonr(x, y).statistic if varies else np.nan)
    add(f"js_{part}", jensenshannon(x, y) ** 2 if x.any() and y.any() else np.nan)
    add(f"cosine_{part}", cosine(x, y) if x.any() and y.any() else np.nan)


CASES = [(variant, {}) for variant in variants()] + [
    ("diff_v2", {"pairing": "across_groups", "num_kv_heads": 2}),
    ("diff_v2", {"lambda_form": "none"}),
    ("diff_v1", {"lambda_fixed": 0.4}),
]


@pytest.mark.parametrize(("variant", "attention"), CASES)
def test_every_variant_equals_the_loops(
    text: Path, tmp_path: Path, variant: str, attention: dict[str, Any]
) -> None:
    # The full threshold of TDA zeroes all weights at a width of 4.
    options = {"beta": 0.3} if variant == "tda" else {}
    context = context_of(text, tmp_path, variant, **options, **attention)
    metrics = metrics_of(measure(suite(), context))
    expected = slow(suite(), context)
    for name, value in metrics.items():
        if name != "tokens":
            slow_value = expected.get(name)
            if slow_value is not None:
                slow_value = pytest.approx(slow_value, rel=1e-4, abs=1e-7)
            assert value == slow_value, name
    layer = context.scorer.model.layers[0].attention
    paired = layer.num_q_heads > layer.num_heads
    assert (metrics["spearman_top"] is not None) == (metrics["entropy_maps"] is not None) == paired


@pytest.mark.parametrize("variant", variants())
def test_blocks_and_batches_change_nothing(text: Path, tmp_path: Path, variant: str) -> None:
    context = context_of(text, tmp_path, variant)
    expected = metrics_of(measure(suite(), context))
    matrix = load_file(tmp_path / DETAILS)["distance"]
    for changes in ({"block": 32}, {"block": 1}, {"batch_size": 3}):
        metrics = metrics_of(measure(suite(**changes), context))
        assert metrics == {
            name: value if value is None else pytest.approx(value, rel=1e-4, abs=1e-6)
            for name, value in expected.items()
        }
        other = load_file(tmp_path / DETAILS)["distance"]
        torch.testing.assert_close(other, matrix, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_the_distance_matrix_has_the_heads_of_all_layers(text: Path, tmp_path: Path) -> None:
    context = context_of(text, tmp_path, "softmax")
    metrics = metrics_of(measure(suite(), context))
    matrix = load_file(tmp_path / DETAILS)["distance"]
    heads = context.scorer.model.config.attention.num_heads
    assert matrix.shape == (LAYERS * heads, LAYERS * heads) and matrix.dtype == torch.float64
    torch.testing.assert_close(matrix, matrix.T)
    torch.testing.assert_close(matrix.diagonal(), torch.zeros(LAYERS * heads).double())
    above = torch.triu_indices(heads, heads, offset=1)
    for layer in range(LAYERS):
        own = matrix[layer * heads :, layer * heads :][:heads, :heads]
        assert metrics[layer_metric("distance", layer)] == pytest.approx(
            float(own[above[0], above[1]].mean())
        )


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_saved_rows_are_means_over_heads(
    text: Path, tmp_path: Path, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{measure.__module__}.SAVED_WINDOWS", 2)
    monkeypatch.setattr(f"{measure.__module__}.SAVED_QUERIES", 3)
    context = context_of(text, tmp_path, "diff_v1")
    measure(suite(block=7, batch_size=batch_size), context)
    saved = load_file(tmp_path / DETAILS)
    assert saved["queries"].tolist() == [13, 22, 31]
    tokens = torch.cat(list(validation_inputs(suite(), context)))[:2]
    (block,) = iter_attention_blocks(context.scorer, tokens, 32)
    for layer, rows in enumerate(block):
        for index, query in enumerate(saved["queries"].tolist()):
            for name, weights in (("signed", rows.weights), ("absolute", rows.weights.abs())):
                expected = weights[:, :, query].mean(1)
                torch.testing.assert_close(saved[name][:, layer, index], expected)


def test_a_single_head_has_no_distance(text: Path, tmp_path: Path) -> None:
    result = measure(suite(), context_of(text, tmp_path, "softmax", num_heads=1))
    assert result.metrics["distance"] is None and "distance" not in result.per_item
    assert result.metrics["distance_all"] is not None


def test_metrics_have_values_by_window(text: Path, tmp_path: Path) -> None:
    result = measure(suite(), context_of(text, tmp_path, "diff_v1"))
    assert {*result.per_item} == {*BY_LAYER, "distance_all"}
    for name, per_item in result.per_item.items():
        assert sizes(per_item) == [("", 3)], name
        total = sum(per_item.terms[0].values) / sum(per_item.terms[0].weights or ())
        assert total == pytest.approx(result.metrics[name])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first_query": 33}, "first_query 33.*seq_len 32"),
        ({"top_fraction": 0.05}, "first_query 14 has 1 salient.*top_fraction 0.05.*3"),
    ],
)
def test_settings_without_enough_tokens_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        suite(**changes)


def test_nan_weights_give_nan_metrics(text: Path, tmp_path: Path) -> None:
    context = context_of(text, tmp_path, "diff_v1")
    with torch.no_grad():
        context.scorer.model.layers[0].attention.qkv_proj.weight.fill_(torch.nan)
    assert np.isnan(measure(suite(), context).metrics["entropy"])
