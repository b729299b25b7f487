"""What models from elsewhere are asked of their heads and of their loss, by slow other ways."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from elsewhere import DECODERS, decoder, measured, write_documents
from small_decoders import model_of
from small_evaluation import republish, save_run
from small_language_models import write_tokenizer
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
def test_heads_are_gated_where_they_are_joined(kind: str) -> None:
    """A gate scales columns of the matrix behind it: its slope is theirs along themselves."""
    model = decoder(kind)
    joined = find_output_projections(model)
    heads = {"diffllama": 2}.get(kind, 4)
    assert [(one.layer, one.heads) for one in joined] == [(0, heads), (1, heads)]
    found = head_gate_grads([one.projection for one in joined], 3, heads, lambda: losses(model))
    for sequence, loss in enumerate(losses(model)):
        for place, one in enumerate(joined):
            weight: Any = one.projection.weight
            (slope,) = torch.autograd.grad(loss, weight, retain_graph=True)
            slow = (slope * weight).sum(0).view(heads, -1).sum(1)
            torch.testing.assert_close(found[sequence, place], slow, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", DECODERS)
def test_values_are_those_that_the_last_row_gathers(kind: str) -> None:
    """What the matrix that joins heads gets, through the norm and factor of differential ones."""
    model, seen = decoder(kind), []
    tokens = WINDOWS[0].tolist()
    joined = find_output_projections(model)

    def look(_: Any, given: Any) -> None:
        if given[0].shape[1] == len(tokens):  # not the reader's own check of a row
            seen.append(given[0][0, -1])

    for one in joined:
        one.projection.register_forward_pre_hook(look)
    rows, values = Scorer(model, CPU).last_attention(tokens, 4)
    assert rows.shape[:2] == (2, joined[0].heads) and rows.shape[2] == values.shape[2] == 12
    (layers,) = iter_attention_blocks(Scorer(model, CPU), WINDOWS[:1], len(tokens))
    maps = [one.weights[0, :, -1] for one in layers]
    for layer, given in enumerate(seen[:2]):
        torch.testing.assert_close(rows[layer], maps[layer].float())
        each = values[layer].repeat_interleave(joined[0].heads // len(values[layer]), dim=0)
        context = (rows[layer][:, None] @ each)[:, 0].double()
        attention = model.inner.model.layers[layer].self_attn
        if kind == "motif":
            context = attention.subln(context) * (1 - attention.lambda_init)
        if kind == "diffllama":
            context = attention.groupnorm(context) * (1 - attention.lambda_init)
        torch.testing.assert_close(context.flatten(), given, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", DECODERS)
def test_curvature_is_that_of_forward_over_reverse(kind: str) -> None:
    model = decoder(kind)
    model.inner.float = lambda: model.inner  # stays in float64
    model.enable_double_backward()
    hessian = LossHessian(model, WINDOWS, 3)
    named = dict(model.named_parameters())
    vector = torch.randn(hessian.size, generator=torch.Generator().manual_seed(2)).double()
    parts = torch.split(vector, [one.numel() for one in named.values()])
    along = {n: v.view_as(w) for (n, w), v in zip(named.items(), parts, strict=True)}

    def loss(weights: dict[str, Tensor]) -> Tensor:
        states = torch.func.functional_call(
            _States(model), {f"of.{n}": w for n, w in weights.items()}, WINDOWS
        )
        logits = states @ weights["inner.lm_head.weight"].T
        return F.cross_entropy(logits.flatten(0, 1), WINDOWS[:, 1:].flatten())

    _, image = torch.func.jvp(torch.func.grad(loss), (named,), (along,))
    slow = torch.cat([image[name].flatten() for name in named])
    assert float((hessian(vector) - slow).norm() / slow.norm()) < 1e-6


class _States(torch.nn.Module):
    def __init__(self, of: HFCausalLM) -> None:
        super().__init__()
        self.of = of

    def forward(self, windows: Tensor) -> Tensor:
        return self.of.hidden_states(windows[:, :-1])


def test_what_cannot_be_differentiated_twice_is_one_line() -> None:
    model = decoder("qwen2")  # fused attention has no second derivative
    model.inner.set_attn_implementation("sdpa")
    with pytest.raises(CheckpointError, match="Qwen2ForCausalLM: its loss cannot be diff") as found:
        LossHessian(model, WINDOWS, 3)(torch.ones(sum(one.numel() for one in model.parameters())))
    assert "\n" not in str(found.value)


SUITES: dict[str, dict[str, Any]] = {
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
def test_an_exported_folder_is_as_the_run_that_it_was(
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
    asked = {"kind": suite, "dataset": "text"} | SUITES[suite]
    ours = measured(tmp_path / "ours.json", text, asked, model=run)
    theirs = measured(tmp_path / "theirs.json", text, asked, pretrained=tmp_path / "exported")
    assert [*theirs.metrics] == [*ours.metrics]
    # Random vectors meet other parameters there: only the ends have converged.
    compared = ("largest", "smallest") if suite == "curvature" else ours.metrics
    tolerance = 1e-2 if suite == "curvature" else 1e-3
    for name, value in ours.metrics.items():
        if name in compared:
            expected = None if value is None else pytest.approx(value, rel=tolerance, abs=1e-5)
            assert theirs.metrics[name] == expected, name


def test_a_phase_of_a_model_from_elsewhere_is_one_line(tmp_path: Path) -> None:
    text, folder = write_documents(tmp_path), tmp_path / "model"
    model_of("llama", vocab_size=300).save_pretrained(folder)
    write_tokenizer(folder)
    asked = {
        "kind": "curvature",
        "dataset": "text",
        "phases": {"early": 0.1},
        **SUITES["curvature"],
    }
    with pytest.raises(UserError, match="has its final weights alone") as found:
        measured(tmp_path / "a.json", text, asked, pretrained=folder)
    assert "\n" not in str(found.value)
