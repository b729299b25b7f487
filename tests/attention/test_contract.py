"""What every variant of the registry must do; a new variant is held to it by being registered."""

import copy
from typing import Any

import pytest
import torch
from oracles import exact_output, exact_weights
from small_layers import D_MODEL, build, inputs

from difftransformer.errors import BackendError
from difftransformer.evaluation.attention_capture import BEFORE, capture_head_outputs
from difftransformer.evaluations.quantized.fake_quantization import (
    fake_quantize_affine,
    quantized_cache,
    quantized_logits,
)
from difftransformer.models.attention.base import Attention
from difftransformer.models.attention.maps import attention_maps
from difftransformer.models.attention.registry import configure, has_head_norm
from difftransformer.models.cache import PrefixCache
from difftransformer.models.kernels import blocked, fused
from difftransformer.models.normalization import RMSNorm

CPU_BACKENDS = ["fused"] if fused.interpreted() else ["eager", "sdpa", "blocked"]
LENGTHS = [13, 70] if fused.interpreted() else [1, 2, 13, 65, 130]


def gradients(
    parameters: Attention | dict[str, torch.Tensor], x: torch.Tensor, out: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Gradients of the input and of parameters by name, from one fixed gradient of the output."""
    probe = torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).to(out.dtype)
    if isinstance(parameters, Attention):
        parameters = dict(parameters.named_parameters())
    actual = torch.autograd.grad(out, [x, *parameters.values()], probe)
    return dict(zip(["x", *parameters], actual, strict=True))


def test_every_tensor_is_trained_or_saved(options: dict[str, Any]) -> None:
    for module in build(options, CPU_BACKENDS[0]).modules():
        loose = [name for name, value in vars(module).items() if isinstance(value, torch.Tensor)]
        assert not loose, f"{loose}: make each an nn.Parameter, or a buffer if it is not to train"


def test_has_head_norm_matches_the_layer(options: dict[str, Any]) -> None:
    layer = build(options, CPU_BACKENDS[0])
    has_norm = any(isinstance(module, RMSNorm) for module in layer.modules())
    reported = has_head_norm(configure(options, D_MODEL))
    assert reported in (None, has_norm)


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize("length", LENGTHS)
def test_forward_and_gradients_are_those_of_the_equations(
    options: dict[str, Any], backend: str, length: int
) -> None:
    layer = build(options, backend)
    x, rope = inputs(layer, length)
    x.requires_grad_()
    weights, exact_x = exact_weights(layer), x.detach().double().requires_grad_()
    exact_out = exact_output(options, weights, exact_x, layer.layer_index)
    out = layer(x, rope)
    torch.testing.assert_close(out.double(), exact_out, rtol=1e-5, atol=1e-5)
    exact = gradients(weights, exact_x, exact_out)
    for name, actual in gradients(layer, x, out).items():
        size = exact[name].abs().max().clamp_min(1.0)
        assert (actual - exact[name]).abs().max() / size < 1e-5, name


if fused.interpreted():

    @pytest.mark.parametrize("length", [13, 70])
    def test_float16_by_fused_is_as_near_the_equations_as_eager_in_float16(
        options: dict[str, Any], length: int
    ) -> None:
        layer, plain = (build(options, backend).half() for backend in ("fused", "eager"))
        plain.load_state_dict(layer.state_dict())
        x, rope = inputs(layer, length)
        x, rope = x.half().requires_grad_(), (rope[0].half(), rope[1].half())

        def outcome(
            parameters: Attention | dict[str, torch.Tensor], x: torch.Tensor, out: torch.Tensor
        ) -> dict[str, torch.Tensor]:
            return {"out": out.double(), **gradients(parameters, x, out)}

        weights, exact_x = exact_weights(layer), x.detach().double().requires_grad_()
        exact_out = exact_output(options, weights, exact_x, layer.layer_index)
        exact = outcome(weights, exact_x, exact_out)
        actual, formula = (outcome(module, x, module(x, rope)) for module in (layer, plain))
        for name, expected in exact.items():
            if name.startswith("lambda_"):
                continue  # a sum over all that cancels: the operation's own test has it
            error, allowed = (
                (module[name] - expected).norm() / expected.norm() for module in (actual, formula)
            )
            assert error < 2 * allowed + torch.finfo(torch.float16).eps, name


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize("length", [1, 70])
def test_second_derivatives_are_those_of_the_equations_or_refused(
    options: dict[str, Any], backend: str, length: int
) -> None:
    layer = build(options, backend)
    x, rope = inputs(layer, length)

    def second(out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        total = out.sum() + (x**2).sum()  # a path beside the layer, as the residual stream is
        (first,) = torch.autograd.grad(total, x, create_graph=True)
        (actual,) = torch.autograd.grad((first**2).sum(), x, allow_unused=True)
        return actual

    x.requires_grad_()
    try:
        actual = second(layer(x, rope), x)
    except NotImplementedError as refusal:
        assert "has no second derivative" in str(refusal)
        return
    exact_x = x.detach().double().requires_grad_()
    exact = exact_output(options, exact_weights(layer), exact_x, layer.layer_index)
    expected = second(exact, exact_x)
    assert (actual - expected).abs().max() / expected.abs().max() < 1e-4


@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_attention_is_causal(options: dict[str, Any], backend: str) -> None:
    layer = build(options, backend)
    x, rope = inputs(layer, 70)
    before = layer(x, rope)
    x[:, 66:] = 1e3
    torch.testing.assert_close(layer(x, rope)[:, :66], before[:, :66], rtol=0, atol=0)
    assert not torch.equal(layer(x, rope)[:, 66:], before[:, 66:])


@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_cached_decoding_is_the_full_forward(options: dict[str, Any], backend: str) -> None:
    layer = build(options, backend)
    x, rope = inputs(layer, 80)
    full = layer(x, rope)
    cache, parts = PrefixCache(80), []
    for start, stop in ((0, 7), (7, 75), (75, 76), (76, 80)):
        span = slice(start, stop)
        parts.append(layer(x[:, span], (rope[0][span], rope[1][span]), None, _at(cache, layer)))
    torch.testing.assert_close(torch.cat(parts, dim=1), full, rtol=1e-5, atol=1e-5)


def _at(cache: PrefixCache, layer: Attention) -> PrefixCache:
    assert layer.layer_index == 1, "the cache files keys under the layer's own index"
    return cache


@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_a_mask_leaves_padding_out(options: dict[str, Any], backend: str) -> None:
    layer = build(options, backend)
    x, rope = inputs(layer, 70)
    alone = layer(x[:1, 5:], (rope[0][5:], rope[1][5:]))
    allowed = torch.ones(70, 70, dtype=torch.bool).tril()
    mask = allowed.repeat(2, 1, 1, 1)
    mask[0, :, :, :5] = torch.eye(70, dtype=torch.bool)[:, :5]
    out = layer(x, rope, mask)
    torch.testing.assert_close(out[:1, 5:], alone, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(out[1:], layer(x, rope)[1:], rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(fused.interpreted(), reason="Triton's interpreter takes bfloat16 for integers")
@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_bfloat16_is_close_to_float32(options: dict[str, Any], backend: str) -> None:
    layer = build(options, backend)
    x, rope = inputs(layer, 13)
    x.requires_grad_()
    exact = layer(x, rope)
    half = copy.deepcopy(layer).bfloat16()(x.bfloat16(), rope)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = layer(x, rope)
        inside = gradients(layer, x, layer(x, rope))
    outside, expected = gradients(layer, x, mixed), gradients(layer, x, exact)
    # A gradient whose parts cancel is as inexact as the parts: hence a share of the whole as well.
    floor = 1e-3 * torch.cat([gradient.flatten() for gradient in expected.values()]).norm()
    for actual in (inside, outside):
        for name, gradient in actual.items():
            assert gradient.dtype == torch.float32, name
            assert (gradient - expected[name]).norm() <= 0.05 * expected[name].norm() + floor, name
    for out in (half, mixed):
        assert out.dtype == torch.bfloat16
        assert (out - exact).norm() / exact.norm() < 0.03


class ChangedValues(PrefixCache):
    """Adds to the values [B, G, S, e] that attention reads."""

    def __init__(self, capacity: int, change: torch.Tensor) -> None:
        super().__init__(capacity)
        self._change = change

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_index: int, /
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return super().update(keys, values + self._change, layer_index)


@torch.no_grad()
def test_attention_maps_are_causal_and_apply_to_the_values(options: dict[str, Any]) -> None:
    """Values whose weighted sums are 0 in every head do not change the output."""
    layer = build(options, "eager").double()
    x, rope = inputs(layer, 13)
    x, rope = x.double(), (rope[0].double(), rope[1].double())
    maps = attention_maps(layer, x, rope)
    assert maps.shape == (2, options["num_heads"], 13, 13)
    assert torch.equal(maps.triu(1), torch.zeros_like(maps))
    if options.get("pairing") == "across_groups":
        return  # its two maps apply to different values
    out, values = layer(x, rope), layer.project(x, rope)[2]
    last = maps[:, :, -1].unflatten(1, (layer.num_kv_heads, -1)).double()  # [B, G, H / G, S]
    change = torch.randn(values.shape, generator=torch.Generator().manual_seed(0)).double()
    unseen = change - torch.linalg.pinv(last) @ (last @ change)
    for added, is_same in ((unseen, True), (change, False)):
        changed = layer(x, rope, None, ChangedValues(13, added))[:, -1]
        assert torch.allclose(changed, out[:, -1], rtol=1e-6, atol=1e-6) == is_same


UNCHANGED_HEADS = ("softmax_off_by_one", "gpt_oss_sink", "diff_v2")
"""Variants without a per-head norm that pass the head outputs to ``o_proj`` unchanged."""


@torch.no_grad()
def test_head_outputs_are_maps_times_values(options: dict[str, Any]) -> None:
    layer = build(options, "eager")
    if getattr(layer, "head_norm", None) is None and options["variant"] not in UNCHANGED_HEADS:
        return
    if options.get("pairing") == "across_groups":
        return  # its two maps apply to different values
    x, rope = inputs(layer, 9)
    heads: dict[str, torch.Tensor] = {}
    number = options["num_heads"]
    with capture_head_outputs(layer, number, lambda _, kind, output: heads.update({kind: output})):
        layer(x, rope)
    values = layer.project(x, rope)[2].repeat_interleave(number // layer.num_kv_heads, dim=1)
    expected = (attention_maps(layer, x, rope) @ values).transpose(1, 2)
    torch.testing.assert_close(heads[BEFORE], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 4])
def test_rows_from_cached_keys_are_the_last_rows_of_the_maps(
    options: dict[str, Any], rows: int
) -> None:
    layer = build(options, "eager")
    x, rope = inputs(layer, 9)
    cache = PrefixCache(12)
    for span in (slice(0, 4), slice(4, 9)):
        layer(x[:, span], (rope[0][span], rope[1][span]), None, cache)
    keys, _ = cache.get(layer.layer_index)
    last = slice(9 - rows, 9)
    q, _, _, extra = layer.project(x[:, last], (rope[0][last], rope[1][last]))
    weights = layer.attention_weights(q, keys, extra)
    torch.testing.assert_close(weights, attention_maps(layer, x, rope)[:, :, last])


def test_recomputed_maps_give_the_same_gradients(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = build(options, "blocked")
    x, rope = inputs(layer, 130)
    x.requires_grad_()
    expected = gradients(layer, x, layer(x, rope))
    monkeypatch.setattr(blocked, "MAX_SAVED_KEYS", 100)
    for name, actual in gradients(layer, x, layer(x, rope)).items():
        assert (actual - expected[name]).norm() <= 1e-5 * expected[name].norm(), name


@torch.no_grad()
@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_logits_are_rounded_or_refused(options: dict[str, Any], backend: str) -> None:
    layer = build(options, backend)
    x, rope = inputs(layer, 13)
    exact = layer(x, rope)
    try:
        with quantized_logits(layer, 2, "head"):
            coarse = layer(x, rope)
        with quantized_logits(layer, 16, "head"):
            fine = layer(x, rope)
    except BackendError as refusal:
        assert backend != "eager" and "backend eager" in str(refusal)
    else:
        assert 0 < (fine - exact).norm() < 0.01 * exact.norm()
        assert (coarse - exact).norm() > 0.05 * exact.norm()
    assert torch.equal(layer(x, rope), exact)


@torch.no_grad()
def test_a_rounded_cache_holds_rounded_keys_and_nothing_else_rounded(
    options: dict[str, Any],
) -> None:
    layer, cache, rounded = build(options, "eager"), PrefixCache(9), PrefixCache(9)
    x, rope = inputs(layer, 9)
    layer(x, rope, None, cache)
    with quantized_cache(layer, 4):
        layer(x, rope, None, rounded)
    _, keys, values, _ = layer.project(x, rope)
    (held, _), (actual, rounded_values) = (
        entry_cache.get(layer.layer_index) for entry_cache in (cache, rounded)
    )
    n = layer.num_k_heads
    keys = keys[:, :n]
    assert torch.equal(actual[:, :n], fake_quantize_affine(keys, 4))
    assert torch.equal(actual[:, n:], held[:, n:])
    assert torch.equal(rounded_values, fake_quantize_affine(values, 4))
