"""Effective attention against its equations, and in cases with a known result."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from small_evaluation import RECALL, eval_context, metrics_of, model_config, scorer, sizes
from torch import Tensor

from difftransformer.convert import dex_weights
from difftransformer.data.packed import PackedDataset
from difftransformer.evaluation.context import EvalContext
from difftransformer.evaluations.effective_attention.measure import effective, measure
from difftransformer.evaluations.effective_attention.settings import (
    KINDS,
    LEARNING_RATE,
    Suite,
    answer_name,
)
from difftransformer.models.attention.registry import variants
from difftransformer.models.transformer import Transformer


def suite(**changes: Any) -> Suite:
    settings = {"needles": 3, "samples": 2, "depths": [0, 50, 100], "steps": 3}
    return Suite(kind="effective_attention", **(settings | changes))


def context_of(
    recall: Path, details: Path, variant: str = "softmax", **options: Any
) -> EvalContext:
    attention = {"variant": variant, "head_dim": 4, **options}
    config = replace(model_config(RECALL.vocab_size), attention=attention)
    model = Transformer.build(config, "sdpa", 0).eval()
    return replace(eval_context(scorer(model), PackedDataset.open(recall)), details=details)


def random_inputs(heads: int, groups: int, positions: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(2, heads, positions, generator=generator, dtype=torch.float64)
    values = torch.randn(2, groups, positions, 4, generator=generator, dtype=torch.float64)
    matrices = torch.randn(2, heads, 4, 4, generator=generator, dtype=torch.float64)
    return rows / rows.sum(-1, keepdim=True), values, matrices


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_every_kind_equals_its_equation(groups: int) -> None:
    rows, values, matrices = random_inputs(4, groups, 9)
    by_kind = effective(rows, values, matrices, suite())
    for layer, head in np.ndindex(2, 4):
        a, v = rows[layer, head].numpy(), values[layer, head * groups // 4].numpy()
        target = a @ v @ (np.eye(4) - matrices[layer, head].numpy())
        x = a.copy()
        for _ in range(suite().steps):
            x = x - LEARNING_RATE * 2 * (x @ v - target) @ v.T
        expected = {
            "weights": a,
            "projected": a @ v @ np.linalg.pinv(v),
            "effective": target @ np.linalg.pinv(v),
            "gradient_descent": x,
        }
        for kind, weights in expected.items():
            np.testing.assert_allclose(by_kind[kind][layer, head].numpy(), weights, atol=1e-12)
        output = by_kind["effective"][layer, head].numpy() @ v
        np.testing.assert_allclose(output, target, atol=1e-12)


def test_nothing_is_lost_when_positions_are_no_more_than_the_head_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{effective.__module__}.LEARNING_RATE", 0.02)
    rows, values, _ = random_inputs(2, 2, 4)
    by_kind = effective(rows, values, None, suite(steps=20_000))
    for kind in KINDS:
        torch.testing.assert_close(by_kind[kind], rows)


def test_scaling_the_output_scales_the_effective_rows() -> None:
    rows, values, _ = random_inputs(2, 2, 9)
    half = 0.5 * torch.eye(4, dtype=torch.float64).expand(2, 2, 4, 4)
    by_kind = effective(rows, values, half, suite(steps=0))
    torch.testing.assert_close(by_kind["effective"], 0.5 * by_kind["projected"])
    torch.testing.assert_close(by_kind["gradient_descent"], rows)


@pytest.mark.parametrize("variant", variants())
def test_every_variant_has_all_metrics(recall: Path, tmp_path: Path, variant: str) -> None:
    context = context_of(recall, tmp_path, variant)
    result = measure(suite(), context)
    assert list(metrics_of(result)) == sorted(result.metrics, key=list(result.metrics).index)
    assert result.metrics["prompts"] == 6
    assert result.metrics["answer_effective"] == result.metrics["answer_projected"]
    by_depth = [result.metrics[answer_name("weights", depth)] for depth in (0, 50, 100)]
    assert result.metrics["answer_weights"] == pytest.approx(
        np.mean([share or 0 for share in by_depth])
    )
    assert sizes(result.per_item["answer_effective"]) == [("", 2)]


def test_dex_changes_only_the_effective_rows(
    recall: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W_D = I and lambda = 2 negate a head's output: shares stay, signs change."""
    context = context_of(recall, tmp_path)
    name = "base_model.model.model.layers.0.self_attn.o_proj.dex_"
    heads = torch.arange(int(context.scorer.model.config.attention.num_heads))
    save_file({name + "heads": heads, name + "difference": torch.eye(4)},
              tmp_path / "adapter.safetensors")  # fmt: skip
    trained = SimpleNamespace(metrics={"lambda_l0": 2.0})
    monkeypatch.setattr(dex_weights, "read_result", lambda path: trained)
    base = metrics_of(measure(suite(), context))
    changed = metrics_of(measure(suite(), replace(context, model=tmp_path)))
    assert changed["answer_effective"] == pytest.approx(base["answer_effective"])
    assert changed["negative_effective"] == pytest.approx(1 - base["negative_effective"])
    assert changed["answer_projected"] == base["answer_projected"]
    assert changed["negative_weights"] == base["negative_weights"] == 0


def test_several_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[30, 40\]"):
        suite(lengths=[30, 40])
