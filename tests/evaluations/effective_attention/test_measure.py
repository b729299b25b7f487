"""Effective attention against its definition, and where it is known by hand."""

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
from difftransformer.evaluations.effective_attention.settings import KINDS, RATE, Suite, answer_name
from difftransformer.models.attention.registry import variants
from difftransformer.models.transformer import Transformer


def suite(**changes: Any) -> Suite:
    known = {"needles": 3, "samples": 2, "depths": [0, 50, 100], "steps": 3}
    return Suite(kind="effective_attention", **(known | changes))


def context_of(recall: Path, details: Path, variant: str = "softmax", **own: Any) -> EvalContext:
    attention = {"variant": variant, "head_dim": 4, **own}
    config = replace(model_config(RECALL.vocab_size), attention=attention)
    model = Transformer.build(config, "sdpa", 0).eval()
    return replace(eval_context(scorer(model), PackedDataset.open(recall)), details=details)


def drawn(heads: int, groups: int, positions: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(2, heads, positions, generator=generator, dtype=torch.float64)
    values = torch.randn(2, groups, positions, 4, generator=generator, dtype=torch.float64)
    matrices = torch.randn(2, heads, 4, 4, generator=generator, dtype=torch.float64)
    return rows / rows.sum(-1, keepdim=True), values, matrices


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_every_kind_is_that_of_its_formula(groups: int) -> None:
    rows, values, matrices = drawn(4, groups, 9)
    asked = suite()
    found = effective(rows, values, matrices, asked)
    for layer, head in np.ndindex(2, 4):
        a, v = rows[layer, head].numpy(), values[layer, head * groups // 4].numpy()
        m = matrices[layer, head].numpy()
        target = a @ v @ (np.eye(4) - m)
        x = a.copy()
        for _ in range(asked.steps):
            x = x - RATE * 2 * (x @ v - target) @ v.T
        expected = {
            "weights": a,
            "projected": a @ v @ np.linalg.pinv(v),
            "effective": target @ np.linalg.pinv(v),
            "descended": x,
        }
        for kind, wanted in expected.items():
            np.testing.assert_allclose(found[kind][layer, head].numpy(), wanted, atol=1e-12)


def test_the_effective_rows_give_what_the_heads_put_out() -> None:
    rows, values, matrices = drawn(2, 2, 9)
    found = effective(rows, values, matrices, suite())
    given = (rows.unsqueeze(2) @ values).squeeze(2)
    wanted = given - (given.unsqueeze(2) @ matrices).squeeze(2)
    put_out = (found["effective"].unsqueeze(2) @ values).squeeze(2)
    torch.testing.assert_close(put_out, wanted)


def test_with_as_many_positions_as_a_head_is_wide_nothing_is_projected_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{effective.__module__}.RATE", 0.02)
    rows, values, _ = drawn(2, 2, 4)
    found = effective(rows, values, None, suite(steps=20_000))
    for kind in KINDS:
        torch.testing.assert_close(found[kind], rows)


def test_a_change_to_scale_heads_scales_rows() -> None:
    rows, values, _ = drawn(2, 2, 9)
    half = 0.5 * torch.eye(4, dtype=torch.float64).expand(2, 2, 4, 4)
    found = effective(rows, values, half, suite(steps=0))
    torch.testing.assert_close(found["effective"], 0.5 * found["projected"])
    torch.testing.assert_close(found["descended"], rows)


@pytest.mark.parametrize("variant", variants())
def test_every_variant_has_all_metrics(recall: Path, tmp_path: Path, variant: str) -> None:
    one = context_of(recall, tmp_path, variant)
    found = measure(suite(), one)
    assert list(metrics_of(found)) == sorted(found.metrics, key=list(found.metrics).index)
    assert found.metrics["prompts"] == 6
    assert found.metrics["answer_effective"] == found.metrics["answer_projected"]
    by_depth = [found.metrics[answer_name("weights", depth)] for depth in (0, 50, 100)]
    assert found.metrics["answer_weights"] == pytest.approx(np.mean([one or 0 for one in by_depth]))
    assert sizes(found.per_item["answer_effective"]) == [("", 2)]


def test_what_dex_left_changes_the_effective_rows_alone(
    recall: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W_D = I and lambda = 2 turn a head's output around: shares stay, signs do not."""
    one = context_of(recall, tmp_path)
    name = "base_model.model.model.layers.0.self_attn.o_proj.dex_"
    heads = torch.arange(int(one.scorer.model.config.attention.num_heads))
    save_file({name + "heads": heads, name + "difference": torch.eye(4)},
              tmp_path / "adapter.safetensors")  # fmt: skip
    trained = SimpleNamespace(metrics={"lambda_l0": 2.0})
    monkeypatch.setattr(dex_weights, "read_result", lambda path: trained)
    own, changed = (
        metrics_of(measure(suite(), each)) for each in (one, replace(one, model=tmp_path))
    )
    assert changed["answer_effective"] == pytest.approx(own["answer_effective"])
    assert changed["negative_effective"] == pytest.approx(1 - own["negative_effective"])
    assert changed["answer_projected"] == own["answer_projected"]
    assert changed["negative_weights"] == own["negative_weights"] == 0


def test_one_length_alone() -> None:
    with pytest.raises(ValueError, match=r"measured at one, got \[30, 40\]"):
        suite(lengths=[30, 40])
