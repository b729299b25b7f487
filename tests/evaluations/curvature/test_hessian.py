"""Hessian-vector products against the exact Hessian of the equations, for every variant."""

from dataclasses import asdict
from typing import Any

import pytest
import torch
from oracles import THETA, exact_output, rms_norm
from torch import Tensor, nn
from torch.autograd.functional import hessian
from torch.func import functional_call

from difftransformer.evaluations.curvature.hessian import LossHessian
from difftransformer.models import autograd
from difftransformer.models.attention.registry import variants
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer

VOCAB, LENGTH = 5, 6
FITTING: dict[str, dict[str, Any]] = {
    "tda": {"beta": 0.3, "norm_eps": 0.01},  # the full threshold zeroes all weights here
    "shared_diff": {"rank": 1},
}


OPTIONS: dict[str, dict[str, Any]] = {
    **{variant: {"variant": variant, **FITTING.get(variant, {})} for variant in variants()},
    "no subtraction": {"variant": "diff_v1", "lambda_fixed": 0.0},
    "no headwise norm": {"variant": "diff_v1", "norm": False},
    "elementwise gate": {"variant": "gated", "gate": "elementwise"},
}


def small(name: str, **changes: Any) -> Transformer:
    sizes = {"vocab_size": VOCAB, "d_model": 8, "num_layers": 2, "ffn_dim": 6, "max_positions": 8,
             "rope_theta": THETA}  # fmt: skip
    attention = {"head_dim": 2, "num_heads": 2, "num_kv_heads": 1} | OPTIONS[name]
    config = ModelConfig(**(sizes | {"attention": attention} | changes))
    model = Transformer.build(config, "eager", 0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("norm.weight"):
                parameter.uniform_(0.5, 1.5, generator=generator)
    return model


class Equations(nn.Module):
    """The loss by the equations, independent of the model's implementation."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        self.options, self.eps = asdict(model.config.attention), model.config.norm_eps

    def forward(self, windows: Tensor) -> Tensor:
        model, tokens, targets = self.model, windows[:, :-1], windows[:, 1:]
        x = model.embedding.weight[tokens]
        for layer in model.layers:
            weights = dict(layer.attention.named_parameters())
            normed = rms_norm(x, layer.attention_norm.weight, self.eps)
            x = x + exact_output(self.options, weights, normed, layer.attention.layer_index)
            normed = rms_norm(x, layer.ffn_norm.weight, self.eps)
            gate, up = (normed @ layer.ffn.gate_up_proj.weight.T).chunk(2, -1)
            x = x + (gate * torch.sigmoid(gate) * up) @ layer.ffn.down_proj.weight.T
        logits = rms_norm(x, model.norm.weight, self.eps) @ model.output_weight.T
        picked = logits.gather(-1, targets[..., None]).squeeze(-1)
        return (logits.exp().sum(-1).log() - picked).mean()


def exact(model: Transformer, windows: Tensor) -> Tensor:
    """Return the full Hessian of the equations, float64 [n, n]."""
    slow = Equations(model).double()
    weights = [*slow.parameters()]
    gradient = torch.autograd.grad(slow(windows), weights, create_graph=True)
    flat = torch.cat([grad.flatten() for grad in gradient])
    unit = torch.eye(len(flat), dtype=torch.float64)
    rows = torch.autograd.grad(
        flat, weights, unit, is_grads_batched=True, materialize_grads=True
    )  # fmt: skip
    return torch.cat([row.flatten(1) for row in rows], dim=1)


@pytest.fixture(scope="module")
def windows() -> Tensor:
    return torch.randint(VOCAB, (3, LENGTH + 1), generator=torch.Generator().manual_seed(2))


def directions(size: int) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(4, size, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", OPTIONS)
def test_products_equal_those_of_the_exact_hessian(name: str, windows: Tensor) -> None:
    in_float32 = LossHessian(small(name), windows, 8)
    model = small(name).double()
    in_float64 = LossHessian(model, windows, 8)
    vectors = directions(in_float64.size)
    matrix = exact(model, windows)
    assert matrix.shape == (in_float64.size, in_float64.size)
    expected = vectors @ matrix
    scale = expected.abs().max()
    assert scale > 0.1
    for product, tolerance in ((in_float64, 1e-6), (in_float32, 1e-4)):
        products = torch.stack([product(vector) for vector in vectors])
        assert (products - expected).abs().max() / scale < tolerance


def test_the_exact_hessian_equals_torchs(windows: Tensor) -> None:
    slow = Equations(small("softmax").double())
    parameters = dict(slow.named_parameters())

    def loss(vector: Tensor) -> Tensor:
        sizes = [weight.numel() for weight in parameters.values()]
        parts = zip(parameters.items(), torch.split(vector, sizes), strict=True)
        weights = {name: part.view_as(weight) for (name, weight), part in parts}
        return functional_call(slow, weights, (windows,))

    flat = torch.cat([weight.detach().flatten() for weight in parameters.values()])
    torch.testing.assert_close(exact(slow.model, windows), hessian(loss, flat, vectorize=True))


def test_tied_embeddings_count_once(windows: Tensor) -> None:
    model = small("softmax", tie_embeddings=True).double()
    ours = LossHessian(model, windows, 8)
    (vector, *_) = directions(ours.size)
    torch.testing.assert_close(ours(vector), exact(model, windows) @ vector)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_batches_add_up(batch_size: int, windows: Tensor) -> None:
    model = small("diff_v1").double()
    single, split = (LossHessian(model, windows, size) for size in (3, batch_size))
    (vector, *_) = directions(single.size)
    for _ in range(2):
        torch.testing.assert_close(split(vector), single(vector))


def test_custom_backward_is_restored(windows: Tensor) -> None:
    from difftransformer.models import linear, normalization, rotary, transformer

    model = small("diff_v1")
    LossHessian(model, windows, 8)
    for module in (linear, normalization, rotary, transformer):
        assert module.use_custom_backward is autograd.use_custom_backward
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.grad(model(windows).sum(), [*model.parameters()], create_graph=True)
