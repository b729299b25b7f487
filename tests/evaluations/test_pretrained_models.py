"""Head outputs, curvature and evaluations of pretrained models against independent computations."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from small_decoders import model_of
from small_evaluation import republish, save_run
from small_language_models import write_tokenizer
from small_pretrained import DECODERS, decoder, measured, write_documents
from torch import Tensor

from difftransformer.convert.attention_hooks import find_output_projections, head_gate_grads
from difftransformer.convert.export import export_model
from difftransformer.errors import CheckpointError, UserError
from difftransformer.evaluation.attention_capture import iter_attention_blocks
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluations.curvature.hessian import LossHessian
from difftransformer.models.language_model import HFCausalLM

CPU = torch.device("cpu")
WINDOWS = torch.randint(48, (3, 12), generator=torch.Generator().manual_seed(1))


def losses(model: HFCausalLM) -> Tensor:
    logits = model.hidden_states(WINDOWS[:, :-1]) @ model.output_weight.T
    return F.cross_entropy(logits.mT, WINDOWS[:, 1:], reduction="none").mean(1)


@pytest.mark.parametrize("kind", DECODERS)
def test_gate_grads_equal_those_of_the_output_projection(kind: str) -> None:
    """A gate on a head scales its columns of W_O: its gradient is W_O's, times W_O, summed."""
    model = decoder(kind)
    projections = find_output_projections(model)
    heads = {"diffllama": 2}.get(kind, 4)
    assert [(p.layer, p.num_heads) for p in projections] == [(0, heads), (1, heads)]
    modules = [projection.module for projection in projections]
    grads = head_gate_grads(modules, 3, heads, lambda: losses(model))
    for sequence, loss in enumerate(losses(model)):
        for index, module in enumerate(modules):
            weight: Any = module.weight
            (grad,) = torch.autograd.grad(loss, weight, retain_graph=True)
            expected = (grad * weight).sum(0).view(heads, -1).sum(1)
            torch.testing.assert_close(grads[sequence, index], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", DECODERS)
def test_last_rows_times_values_equal_the_head_outputs(kind: str) -> None:
    """The input of W_O, after the norm and factor of differential heads."""
    model, head_outputs = decoder(kind), []
    tokens = WINDOWS[0].tolist()
    projections = find_output_projections(model)

    def hook(_: Any, inputs: Any) -> None:
        if inputs[0].shape[1] == len(tokens):  # not the reader's own check of a row
            head_outputs.append(inputs[0][0, -1])

    for projection in projections:
        projection.module.register_forward_pre_hook(hook)
    heads = projections[0].num_heads
    rows, values = Scorer(model, CPU).last_attention(tokens, 4)
    assert rows.shape[:2] == (2, heads) and rows.shape[2] == values.shape[2] == 12
    (layers,) = iter_attention_blocks(Scorer(model, CPU), WINDOWS[:1], len(tokens))
    maps = [block.weights[0, :, -1] for block in layers]
    for layer, output in enumerate(head_outputs[:2]):
        torch.testing.assert_close(rows[layer], maps[layer].float())
        by_head = values[layer].repeat_interleave(heads // len(values[layer]), dim=0)
        context = (rows[layer][:, None] @ by_head)[:, 0].double()
        attention = model.inner.model.layers[layer].self_attn
        if kind == "motif":
            context = attention.subln(context) * (1 - attention.lambda_init)
        if kind == "diffllama":
            context = attention.groupnorm(context) * (1 - attention.lambda_init)
        torch.testing.assert_close(context.flatten(), output, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", DECODERS)
def test_hessian_products_equal_forward_over_reverse(kind: str) -> None:
    model = decoder(kind)
    model.inner.float = lambda: model.inner  # stays in float64
    model.enable_double_backward()
    hessian = LossHessian(model, WINDOWS, 3)
    parameters = dict(model.named_parameters())
    vector = torch.randn(hessian.size, generator=torch.Generator().manual_seed(2)).double()
    parts = torch.split(vector, [weight.numel() for weight in parameters.values()])
    tangents = {n: v.view_as(w) for (n, w), v in zip(parameters.items(), parts, strict=True)}

    def loss(weights: dict[str, Tensor]) -> Tensor:
        states = torch.func.functional_call(
            _HiddenStates(model), {f"model.{n}": w for n, w in weights.items()}, WINDOWS
        )
        logits = states @ weights["inner.lm_head.weight"].T
        return F.cross_entropy(logits.flatten(0, 1), WINDOWS[:, 1:].flatten())

    _, product = torch.func.jvp(torch.func.grad(loss), (parameters,), (tangents,))
    expected = torch.cat([product[name].flatten() for name in parameters])
    assert float((hessian(vector) - expected).norm() / expected.norm()) < 1e-6


class _HiddenStates(torch.nn.Module):
    def __init__(self, model: HFCausalLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, windows: Tensor) -> Tensor:
        return self.model.hidden_states(windows[:, :-1])


def test_a_model_without_second_derivative_fails_with_a_one_line_error() -> None:
    model = decoder("qwen2")  # fused attention has no second derivative
    model.inner.set_attn_implementation("sdpa")
    hessian = LossHessian(model, WINDOWS, 3)
    with pytest.raises(CheckpointError, match="Qwen2ForCausalLM") as error:
        hessian(torch.ones(hessian.size))
    assert "\n" not in str(error.value)


SUITES: dict[str, dict[str, Any]] = {
    "attention_maps": {
        "seq_len": 32,
        "batch_size": 2,
        "max_tokens": 96,
        "top_fraction": 0.2,
        "first_query": 14,
        "block": 5,
    },
    "sinks": {"seq_len": 32, "first_query": 5, "max_tokens": 96, "batch_size": 2},
    "head_features": {"seq_len": 32, "max_tokens": 96, "batch_size": 2, "samples": 8},
    "curvature": {"seq_len": 12, "sequences": 2, "batches": 1, "steps": 40},
    "sentences": {"sentences": ["object_1"]},
    "effective_attention": {
        "format": "text",
        "lengths": [224],
        "needles": 1,
        "depths": [0, 100],
        "samples": 2,
        "steps": 20,
        "batch_size": 2,
    },
}


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize(("variant", "kind"), [("softmax", "llama"), ("diff_v1", "diffllama")])
def test_an_exported_run_has_the_same_results(
    tmp_path: Path, suite: str, variant: str, kind: str
) -> None:
    text = write_documents(tmp_path)
    attention = {"variant": variant, "head_dim": 4}
    run = save_run(
        tmp_path / "run", 320, dataset=text, attention=attention, num_layers=2, max_positions=256
    )
    shutil.copy(text / "tokenizer_config.json", run)
    republish(run)
    export_model(run, tmp_path / "exported", kind)
    config = {"kind": suite, "dataset": "text"} | SUITES[suite]
    ours = measured(tmp_path / "ours.json", text, config, model=run)
    theirs = measured(tmp_path / "theirs.json", text, config, pretrained=tmp_path / "exported")
    assert [*theirs.metrics] == [*ours.metrics]
    # The random vectors meet the parameters in another order: only the ends have converged.
    compared = ("largest", "smallest") if suite == "curvature" else ours.metrics
    tolerance = 1e-2 if suite == "curvature" else 1e-3
    for name, value in ours.metrics.items():
        if name in compared:
            expected = None if value is None else pytest.approx(value, rel=tolerance, abs=1e-5)
            assert theirs.metrics[name] == expected, name
    for file in (tmp_path / "ours.details").glob("*.safetensors"):
        exported = load_file(tmp_path / "theirs.details" / file.name)
        for name, tensor in load_file(file).items():
            torch.testing.assert_close(exported[name], tensor, rtol=1e-3, atol=1e-5, equal_nan=True)


def test_a_pretrained_model_has_no_phases(tmp_path: Path) -> None:
    text, folder = write_documents(tmp_path), tmp_path / "model"
    model_of("llama", vocab_size=300).save_pretrained(folder)
    write_tokenizer(folder)
    config = {
        "kind": "curvature",
        "dataset": "text",
        "phases": {"early": 0.1},
        **SUITES["curvature"],
    }
    with pytest.raises(UserError, match=r"curvature\.phases.*pretrained.*final weights") as error:
        measured(tmp_path / "a.json", text, config, pretrained=folder)
    assert "\n" not in str(error.value)
