"""Shares of attention by region, against numpy on a model with given weights."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small_evaluation import RECALL, eval_context, metrics_of, model_config, scorer, sizes

from difftransformer.data.packed import PackedDataset
from difftransformer.evaluation.context import Metrics
from difftransformer.evaluation.retrieval.prompts import open_builder
from difftransformer.evaluation.retrieval.settings import NeedlePrompt, NeedleSetting, Span
from difftransformer.evaluations.attention_allocation.measure import (
    label_regions,
    measure,
    region_shares,
)
from difftransformer.evaluations.attention_allocation.settings import MAPS, PROMPT, REGIONS, Suite
from difftransformer.models.transformer import DecoderLayer, Transformer

SOFTMAX = {"variant": "softmax", "head_dim": 8}
DIFF = {"variant": "diff_v1", "head_dim": 4}
SHARED = {"variant": "diff_v1", "head_dim": 4, "num_heads": 2, "num_kv_heads": 1}


def suite(**changes: Any) -> Suite:
    settings = {"needles": 3, "samples": 2, "depths": [0, 50, 100]}
    return Suite(kind="attention_allocation", **(settings | changes))


def formula_model(attention: dict[str, Any]) -> Transformer:
    """Return a model whose weights are a formula, so that numpy can compute its attention."""
    config = replace(model_config(RECALL.vocab_size), attention=attention)
    model = Transformer(config, "sdpa").eval()
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            wave = torch.sin(torch.arange(parameter.numel()).double() ** 2 * (0.37 + number))
            parameter.copy_(wave.view_as(parameter) * (0.6 if parameter.ndim == 2 else 0.4))
        for name, parameter in model.named_parameters():
            if "lambda" in name:  # makes lambda 0.33, so that some weights are negative
                parameter.fill_(0.2 if name.endswith("1") else 0.1)
        for layer in [*model.layers, model]:
            norms = [layer.attention_norm] if isinstance(layer, DecoderLayer) else [model.norm]
            for norm in norms:
                norm.weight.fill_(1.0)
    return model


def first_row(model: Transformer, ids: list[int], attention: dict[str, Any]) -> np.ndarray:
    """Return the attention weights of the last token in the first layer by numpy, [H, S]."""
    layer = model.layers[0]
    assert isinstance(layer, DecoderLayer)
    weights = {name: p.detach().double().numpy() for name, p in layer.attention.named_parameters()}
    x = model.embedding.weight.detach().double().numpy()[ids]
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    d, maps = attention["head_dim"], 2 if attention["variant"] == "diff_v1" else 1
    H = attention.get("num_heads") or 16 // (d * maps)
    G = attention.get("num_kv_heads") or H
    projected = x @ weights["qkv_proj.weight"].T
    angles = np.arange(len(ids))[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)

    def rotated(first: int) -> np.ndarray:
        a, b = np.split(projected[:, first * d : (first + 1) * d], 2, axis=1)
        return np.concatenate(
            [a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], 1
        )

    def attention_map(h: int, which: int) -> np.ndarray:
        q, k = rotated(maps * h + which), rotated(maps * H + maps * (h // (H // G)) + which)
        scores = k @ q[-1] / np.sqrt(d)
        exponentials = np.exp(scores - scores.max())
        return exponentials / exponentials.sum()

    if maps == 1:
        return np.stack([attention_map(h, 0) for h in range(H)])
    dots = [weights[f"lambda_q{i}"] @ weights[f"lambda_k{i}"] for i in (1, 2)]
    lam = np.exp(dots[0]) - np.exp(dots[1]) + 0.2
    return np.stack([attention_map(h, 0) - lam * attention_map(h, 1) for h in range(H)])


@pytest.mark.filterwarnings("error")
def test_rows_are_divided_by_the_sum_of_their_absolute_or_signed_weights() -> None:
    rows = np.array([[[0.0, 0.0, 0.0], [0.5, -0.1, 0.4]]])  # shares of a row without weights are 0
    absolute, signed = region_shares(rows, np.array([0, 2, 4]))[:, 0]
    np.testing.assert_allclose(absolute, [[0.0] * 6, [0.5, 0, 0.1, 0, 0.4, 0]])
    np.testing.assert_allclose(signed, [[0.0] * 6, [0.625, 0, -0.125, 0, 0.5, 0]])


@pytest.fixture
def dataset(recall: Path) -> PackedDataset:
    return PackedDataset.open(recall)


def run(model: Any, dataset: PackedDataset, details: Path, **changes: Any) -> Metrics:
    context = replace(eval_context(scorer(model), dataset), details=details)
    return metrics_of(measure(suite(**changes), context))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("attention", [SOFTMAX, DIFF, SHARED])
def test_shares_equal_numpy(
    attention: dict[str, Any], signed: bool, dataset: PackedDataset, tmp_path: Path
) -> None:
    model = formula_model(attention)
    metrics = run(model, dataset, tmp_path)
    builder = open_builder(suite(), dataset)
    total: dict[str, list[float]] = {}
    for depth in (0, 50, 100):
        for sample in range(2):
            prompt = builder.prompt(NeedleSetting(3, 1, None, depth), sample)
            ids = builder.token_ids(prompt.context + prompt.questions[0])
            row = first_row(model, ids, attention)
            row = row if signed else np.abs(row)
            row = row / row.sum(-1, keepdims=True)
            start = prompt.needle.start
            parts = {
                "bos": row[:, :1] if start else row[:, :0],
                "before": row[:, 1:start],
                "answer": row[:, start : start + 2],
                "after": row[:, start + 2 : -1],
                "query": row[:, -1:],
            }
            for name, part in parts.items():
                for cut in (f"_d{depth}", "_l0", ""):
                    label = f"{name}{'_signed' if signed else ''}{cut}"
                    total.setdefault(label, []).append(part.sum(-1).mean())
    for name, values in total.items():
        assert metrics[name] == pytest.approx(np.mean(values), abs=1e-5), name
    assert metrics["noise_d50"] == pytest.approx(metrics["before_d50"] + metrics["after_d50"])


def test_the_mean_over_layers_is_the_share(dataset: PackedDataset, tmp_path: Path) -> None:
    config = replace(model_config(RECALL.vocab_size), attention=DIFF, num_layers=3)
    model = Transformer.build(config, "sdpa", seed=0).eval()
    metrics = run(model, dataset, tmp_path)
    for name in ("answer", "noise_signed"):
        layers = [metrics[f"{name}_l{layer}"] for layer in range(3)]
        assert np.mean(layers) == pytest.approx(metrics[name]) and len({*layers}) == 3
    with torch.no_grad():  # a change of the last layer changes only its shares
        model.layers[2].attention.qkv_proj.weight.mul_(2)
    changed = run(model, dataset, tmp_path)
    moved = [metrics[f"answer_l{layer}"] != changed[f"answer_l{layer}"] for layer in range(3)]
    assert moved == [False, False, True]


@pytest.mark.parametrize("attention", [SOFTMAX, DIFF, SHARED])
def test_shares_of_a_row_sum_to_one(
    attention: dict[str, Any], dataset: PackedDataset, tmp_path: Path
) -> None:
    metrics = run(formula_model(attention), dataset, tmp_path)
    assert sum(metrics[name] or 0 for name in REGIONS) == pytest.approx(1, abs=1e-6)
    for depth in (0, 50, 100):
        parts = [metrics[f"{name}_d{depth}"] for name in ("bos", "answer", "query", "noise")]
        assert sum(part or 0 for part in parts) == pytest.approx(1, abs=1e-6)
    assert metrics["prompts"] == 6
    shares = np.load(tmp_path / "shares.npy")
    heads = 2
    assert shares.shape == (2, 3, 2, 1, heads, len(REGIONS) + 1)
    np.testing.assert_allclose(shares[..., :-1].sum(-1), 1, atol=1e-5)
    rows, example = np.load(tmp_path / "example_rows.npy"), _example(tmp_path)
    assert rows.shape == (1, heads, len(example["tokens"]))
    maps = load_file(tmp_path / MAPS)["maps"].float().numpy()
    np.testing.assert_allclose(maps[..., -1, :], rows, atol=1e-3)  # saved in half precision
    assert (np.triu(maps, 1) == 0).all()
    total = rows.sum(-1)
    if attention is SOFTMAX:
        np.testing.assert_allclose(total, 1, atol=1e-5)
    else:  # the difference of two softmax rows: 1 - lambda, the same in all heads
        assert rows.min() < 0 and np.ptp(total) < 1e-5


def test_regions_of_a_prompt() -> None:
    prompt = NeedlePrompt("", (), (), needle=Span(3, 6), question=Span(8, 10))
    names = [REGIONS[region] for region in label_regions(prompt, 10)]
    assert names == ["bos", *["before"] * 2, *["answer"] * 3, *["after"] * 2, *["query"] * 2]
    first = replace(prompt, needle=Span(0, 2))
    assert [REGIONS[r] for r in label_regions(first, 10)][:3] == ["answer"] * 2 + ["after"]


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_chunks_do_not_matter(chunk: int, dataset: PackedDataset, tmp_path: Path) -> None:
    model = formula_model(DIFF)
    unchunked = run(model, dataset, tmp_path)
    for name, value in run(model, dataset, tmp_path, chunk=chunk).items():
        assert value == pytest.approx(unchunked[name], abs=1e-6), name


def test_the_suite_runs_on_text(
    english: PackedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{measure.__module__}.MAX_MAP_TOKENS", 9)
    config = model_config(english.manifest.vocab_size, max_positions=300)
    model = Transformer.build(config, "sdpa", seed=0).eval()
    changes = {"format": "text", "lengths": [300], "needles": 2, "samples": 3, "depths": [0, 100]}
    shares = run(model, english, tmp_path, **changes)
    parts = [shares[name] or 0 for name in ("bos", "noise", "answer", "query")]
    assert sum(parts) == pytest.approx(1, abs=1e-6) and min(parts) > 0
    example = _example(tmp_path)
    assert not (tmp_path / MAPS).exists()  # too large for so many tokens
    answer = "".join(
        token
        for token, region in zip(example["tokens"], example["regions"], strict=True)
        if region == "answer"
    )
    assert re.fullmatch(r"\s?The special magic \w+ number is: \d{7}", answer)


def _example(details: Path) -> dict[str, Any]:
    example: dict[str, Any] = json.loads((details / PROMPT).read_text())
    assert len(example["tokens"]) == len(example["regions"])
    assert example["maps"] == (details / MAPS).exists()
    return example


def test_shares_have_values_by_haystack(dataset: PackedDataset, tmp_path: Path) -> None:
    context = replace(eval_context(scorer(formula_model(SOFTMAX)), dataset), details=tmp_path)
    result = measure(suite(), context)
    assert {*result.per_item} == {*result.metrics} - {"prompts"}
    assert {*map(tuple, map(sizes, result.per_item.values()))} == {(("", 2),)}
    depths = [result.per_item[f"noise_d{depth}"].terms[0].values for depth in (0, 50, 100)]
    assert result.per_item["noise"].terms[0].values == pytest.approx(np.mean(depths, axis=0))
