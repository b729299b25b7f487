"""Head outputs of small models: gate gradients, importance, CKA and the change by Dex."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from small_evaluation import VOCAB, eval_context, metrics_of, model_config, scorer

from difftransformer.convert import dex_weights
from difftransformer.convert.attention_hooks import find_output_projections
from difftransformer.data.packed import PackedDataset
from difftransformer.evaluation.context import EvalContext
from difftransformer.evaluations.head_features.measure import gate_grads, measure
from difftransformer.evaluations.head_features.settings import DETAILS, Suite
from difftransformer.models.attention.registry import variants
from difftransformer.models.transformer import Transformer


def suite(**changes: Any) -> Suite:
    return Suite(
        kind="head_features", **({"seq_len": 16, "batch_size": 3, "samples": 20} | changes)
    )


def context_of(text: Path, tmp_path: Path, variant: str = "softmax") -> EvalContext:
    config = replace(model_config(VOCAB), attention={"variant": variant, "head_dim": 4})
    model = Transformer.build(config, "sdpa", 0).eval()
    return replace(eval_context(scorer(model), PackedDataset.open(text)), details=tmp_path)


@pytest.mark.parametrize("variant", variants())
def test_every_variant_has_all_metrics(text: Path, tmp_path: Path, variant: str) -> None:
    context = context_of(text, tmp_path, variant)
    metrics = metrics_of(measure(suite(max_tokens=96), context))
    assert metrics["dex_cosine"] is None
    details = load_file(tmp_path / DETAILS)
    heads = context.scorer.model.config.attention.num_heads
    layers = context.scorer.model.config.num_layers
    assert details["cka"].shape == (layers * heads, layers * heads)
    assert details["importance"].amax(1).tolist() == pytest.approx([1.0] * layers)
    assert metrics["importance_evenness"] == pytest.approx(float(details["importance"].mean()))


def test_gate_grads_equal_finite_differences(text: Path, tmp_path: Path) -> None:
    context = context_of(text, tmp_path)
    model = context.scorer.model.double()
    heads = model.config.attention.num_heads
    windows = torch.randint(0, VOCAB, (2, 13), generator=torch.Generator().manual_seed(0))
    grads = gate_grads(context, windows, find_output_projections(model))

    def losses(layer: int, head: int, gate: float) -> torch.Tensor:
        def hook(module: Any, inputs: Any) -> Any:
            parts = list(inputs[0].chunk(heads, dim=-1))
            parts[head] = parts[head] * gate
            return (torch.cat(parts, dim=-1),)

        handle = model.layers[layer].attention.o_proj.register_forward_pre_hook(hook)
        with torch.no_grad():
            logits = model(windows[:, :-1])
        handle.remove()
        return F.cross_entropy(logits.mT, windows[:, 1:], reduction="none").mean(1)

    step = 1e-5
    for layer in range(model.config.num_layers):
        for head in range(heads):
            expected = (losses(layer, head, 1 + step) - losses(layer, head, 1 - step)) / (2 * step)
            torch.testing.assert_close(grads[:, layer, head], expected, atol=1e-8, rtol=1e-5)


def test_heads_with_equal_outputs_are_aligned(text: Path, tmp_path: Path) -> None:
    context = context_of(text, tmp_path)
    width = context.scorer.model.config.attention.head_dim
    heads = context.scorer.model.config.attention.num_heads
    with torch.no_grad():
        for layer in context.scorer.model.layers:
            rows = layer.attention.qkv_proj.weight.view(3, heads, width, -1)
            rows[:, 1:] = rows[:, :1]
    metrics = metrics_of(measure(suite(max_tokens=96), context))
    assert metrics["cka"] == pytest.approx(1.0, abs=1e-6)


def test_the_change_by_dex_is_read_from_its_weights(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W_D = I scales a head by 1 - lambda: the change has its direction and lambda of its norm."""
    context = context_of(text, tmp_path)
    layers, width = (
        context.scorer.model.config.num_layers,
        context.scorer.model.config.attention.head_dim,
    )
    tensors = {}
    for layer in range(layers):
        name = f"base_model.model.model.layers.{layer}.self_attn.o_proj.dex_"
        tensors[name + "heads"] = torch.tensor([1])
        tensors[name + "difference"] = torch.eye(width) * (1 if layer == 0 else -1)
    save_file(tensors, tmp_path / "adapter.safetensors")

    trained = SimpleNamespace(metrics={f"lambda_l{layer}": 0.25 for layer in range(layers)})
    monkeypatch.setattr(dex_weights, "read_result", lambda path: trained)
    metrics = metrics_of(measure(suite(max_tokens=96), replace(context, model=tmp_path)))
    assert metrics["dex_norm"] == pytest.approx(0.25, abs=1e-6)
    details = load_file(tmp_path / DETAILS)
    assert details["cosine"][:, 1].tolist() == pytest.approx([1.0] + [-1.0] * (layers - 1))
    assert details["cosine"][:, 0].isnan().all()
