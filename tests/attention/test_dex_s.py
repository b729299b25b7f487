"""Dex from scratch against the Dex of trained models, and where it must be plain softmax."""

from typing import Any

import pytest
import torch
from oracles import exact_output, exact_weights, softmax_heads
from small_layers import D_MODEL, build, inputs

from difftransformer.convert.dex.tuner import subtract_difference
from difftransformer.evaluations.quantized.fake_quantization import quantized_weights
from difftransformer.models.attention.dex_s import DexAttention
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer

HEADS = {"head_dim": 6, "num_heads": 4, "num_kv_heads": 2}


def dex_s(**own: Any) -> DexAttention:
    layer = build({"variant": "dex_s", **HEADS, **own}, "sdpa")
    assert isinstance(layer, DexAttention)
    return layer


@pytest.mark.parametrize("difference", ["layer", "head"])
@pytest.mark.parametrize(("share", "selected"), [(1.0, 4), (0.5, 2), (0.1, 1)])
def test_it_changes_heads_as_dex_changes_those_of_trained_models(
    share: float, selected: int, difference: str
) -> None:
    layer, plain = (
        dex_s(share=share, difference=difference),
        build({"variant": "softmax", **HEADS}, "sdpa"),
    )
    plain.load_state_dict(layer.state_dict(), strict=False)
    assert layer.selected == selected
    x, rope = inputs(layer, 9)
    options = {"variant": "softmax", **HEADS}
    heads = torch.stack([*softmax_heads(options, dict(plain.named_parameters()), x)], dim=2)
    weight = layer.difference_proj.weight.view(-1, 6, 6).mT
    w_d = weight if difference == "head" else weight[0]
    own = subtract_difference(heads[:, :, :selected], w_d, layer.lambda_learned)
    joined = torch.cat((own, heads[:, :, selected:]), dim=2).flatten(2)
    torch.testing.assert_close(layer(x, rope), joined @ layer.o_proj.weight.T, rtol=1e-5, atol=1e-5)
    assert (layer(x, rope) - plain(x, rope)).abs().max() > 0.1


def test_it_folds_into_the_output_projection() -> None:
    layer, plain = dex_s(difference="head"), build({"variant": "softmax", **HEADS}, "sdpa")
    plain.load_state_dict(layer.state_dict(), strict=False)
    with torch.no_grad():
        by_head = plain.o_proj.weight.view(D_MODEL, 4, 6).transpose(0, 1)
        w_d = layer.difference_proj.weight.view(4, 6, 6).mT
        folded = by_head @ (torch.eye(6) - layer.lambda_learned * w_d).mT
        plain.o_proj.weight.copy_(folded.transpose(0, 1).flatten(1))
    x, rope = inputs(layer, 9)
    torch.testing.assert_close(plain(x, rope), layer(x, rope), rtol=1e-5, atol=1e-5)


def test_from_a_lambda_of_0_it_starts_as_softmax_and_learns() -> None:
    layer, plain = dex_s(lambda_init=0.0), build({"variant": "softmax", **HEADS}, "sdpa")
    plain.load_state_dict(layer.state_dict(), strict=False)
    x, rope = inputs(layer, 9)
    out = layer(x, rope)
    assert torch.equal(out, plain(x, rope))
    out.square().sum().backward()
    assert layer.lambda_learned.grad.abs() > 1e-3


def test_one_matrix_of_a_layer_is_drawn_and_kept_once() -> None:
    config = ModelConfig(
        vocab_size=8, d_model=64, num_layers=2, ffn_dim=8, max_positions=8,
        attention={"variant": "dex_s", "head_dim": 16},
    )  # fmt: skip
    model = Transformer.build(config, "eager", 0)
    names = [name for name in model.state_dict() if "difference" in name]
    assert names == [f"layers.{index}.attention.difference_proj.weight" for index in (0, 1)]
    first, second = (model.get_parameter(name).detach() for name in names)
    assert float(first.std()) == pytest.approx(16**-0.5, rel=0.2) and not torch.equal(first, second)
    starts = [layer.attention.lambda_learned.item() for layer in model.layers]
    assert starts == pytest.approx([0.2, 0.8 - 0.6 * 0.7408182], abs=1e-6)


@pytest.mark.parametrize("difference", ["layer", "head"])
def test_gradients_of_a_share_of_heads_are_those_of_the_equations(difference: str) -> None:
    own = {"share": 0.5, "difference": difference}
    layer = dex_s(**own).double()
    x, rope = inputs(layer, 9)
    exact_x, turns = x.double().requires_grad_(), (rope[0].double(), rope[1].double())
    options, weights = {"variant": "dex_s", **HEADS, **own}, exact_weights(layer)
    outputs = (layer(exact_x, turns), exact_output(options, weights, exact_x, layer.layer_index))
    trained = (layer.parameters(), weights.values())
    actual, expected = (
        torch.autograd.grad((out**2).sum(), [exact_x, *parameters])
        for out, parameters in zip(outputs, trained, strict=True)
    )
    for grad, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(grad, other, rtol=1e-9, atol=1e-9)
        assert grad.abs().max() > 0


@torch.no_grad()
@pytest.mark.parametrize("difference", ["layer", "head"])
def test_its_matrix_is_printed_and_rounded_as_all_others_are(difference: str) -> None:
    config = ModelConfig(
        vocab_size=8, d_model=64, num_layers=1, ffn_dim=8, max_positions=8,
        attention={"variant": "dex_s", "head_dim": 16, "difference": difference},
    )  # fmt: skip
    model = Transformer.build(config, "eager", 0)
    assert "difference_proj" in repr(model)
    matrix = model.layers[0].attention.difference_proj.weight
    exact = matrix.clone()
    with quantized_weights(model, 3):
        assert not torch.equal(matrix, exact) and (matrix - exact).abs().max() < 0.5
        assert all(len(row.unique()) <= 8 for row in matrix)
    assert torch.equal(matrix, exact)
