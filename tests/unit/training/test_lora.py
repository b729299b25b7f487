"""Gradients of LoRA and PiSSA against those of the matrices written out."""

import pytest
import torch
from small_decoders import model_of
from tiny_training import make_run_config

from difftransformer.models.language_model import HFCausalLM
from difftransformer.training.method import Task
from difftransformer.training.methods import configure, prepare


@pytest.mark.parametrize("method", ["lora", "pissa"])
def test_low_rank_gradients_match_explicit_matrices(method: str) -> None:
    tokens = torch.randint(0, 48, (3, 11), generator=torch.Generator().manual_seed(1))
    plain, training = model_of("qwen2").double(), make_run_config("softmax").training
    task = Task(training, 0, lambda number: [tokens])
    model = HFCausalLM(model_of("qwen2"))
    prepare(model, configure({"method": method, "rank": 4}), task)
    model.double()  # not before: PiSSA starts in single precision
    parts = dict(model.inner.named_parameters())
    own = {name: tensor for name, tensor in parts.items() if tensor.requires_grad}
    with torch.no_grad():  # LoRA's start at zero would hide half of it
        for name, parameter in own.items():
            parameter.add_(torch.randn(parameter.shape, generator=torch.manual_seed(len(name))))
    scale = {"lora": 2.0, "pissa": 1.0}[method]
    written = {}
    for name in dict(plain.named_parameters()):
        stem, _, kind = name.rpartition(".")
        written[name] = parts[name if name in parts else f"{stem}.base_layer.{kind}"]
        if f"{stem}.lora_A.default.weight" in own and kind == "weight":
            A, B = (own[f"{stem}.lora_{half}.default.weight"] for half in "AB")
            written[name] = written[name] + scale * B @ A
    losses = [
        logits.log_softmax(-1)[..., 3].mean()
        for logits in (
            model.inner(tokens).logits,
            torch.func.functional_call(plain, written, (tokens,)).logits,
        )
    ]
    result, wanted = (torch.autograd.grad(loss, list(own.values())) for loss in losses)
    assert len(own) == 2 * 2 * 7  # two halves of seven matrices in two layers
    for name, ours, slow in zip(own, result, wanted, strict=True):
        assert slow.abs().max() > 0, name
        torch.testing.assert_close(ours, slow, atol=1e-9, rtol=1e-7)
