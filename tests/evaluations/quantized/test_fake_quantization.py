"""Quantized logits, weights and caches: error bounds, agreement with torchao, restoration."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torchao.quantization import IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerAxis
from torchao.quantization.quant_primitives import MappingType

from difftransformer.evaluations.quantized.fake_quantization import (
    Granularity,
    QuantizingCache,
    absmax_quantizer,
    fake_quantize_affine,
    quantized_cache,
    quantized_weights,
)
from difftransformer.models.cache import PrefixCache
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer

CAUSAL_MASK = torch.ones(5, 5, dtype=torch.bool).tril()
GROUPS: dict[Granularity, tuple[int, ...]] = {"head": (2, 3), "row": (3,)}
TOKENS = torch.arange(12).view(2, 6) % 11


def numbers(seed: int) -> Tensor:
    return torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(seed)) * 5


def small(variant: str) -> Transformer:
    config = ModelConfig(
        vocab_size=11,
        d_model=16,
        num_layers=2,
        ffn_dim=24,
        attention={"variant": variant, "head_dim": 4},
        max_positions=8,
        embedding_std=1.0,
    )
    return Transformer.build(config, "eager", 0)


@settings(max_examples=25)
@given(st.integers(0, 2**16), st.sampled_from([2, 4, 6, 8, 16]))
def test_error_is_at_most_half_a_step_of_the_row(seed: int, bits: int) -> None:
    exact = numbers(seed)
    quantized = fake_quantize_affine(exact, bits)
    # At most: a group whose largest magnitude is negative has a level more for it.
    step = exact.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    rounding = 4 * torch.finfo(torch.float32).eps * exact.abs()
    assert ((quantized - exact).abs() <= 0.5 * step + rounding).all()
    assert all(len(torch.unique(row)) <= 2**bits for row in quantized.view(-1, 8))


@pytest.mark.parametrize("bits", [4, 6, 8])
def test_quantized_weights_equal_torchaos(bits: int) -> None:
    matrix = nn.Linear(32, 8, bias=False)
    exact = matrix.weight.detach().clone()
    config = IntxWeightOnlyConfig(
        weight_dtype=getattr(torch, f"int{bits}"),
        granularity=PerAxis(0),
        mapping_type=MappingType.SYMMETRIC_NO_CLIPPING_ERR,
    )
    quantize_(matrix, config)
    theirs = matrix.weight.dequantize()  # type: ignore[operator]
    torch.testing.assert_close(fake_quantize_affine(exact, bits), theirs, rtol=1e-6, atol=1e-7)


@torch.no_grad()
@pytest.mark.parametrize("variant", ["softmax", "diff_v1"])
def test_weights_are_quantized_in_the_context_and_restored(variant: str) -> None:
    model = small(variant)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    exact = model(TOKENS)
    with quantized_weights(model, 4):
        changed = {n for n, v in model.state_dict().items() if not torch.equal(v, before[n])}
        assert not torch.equal(model(TOKENS), exact)
    matrices = {name for name, value in before.items() if value.ndim == 2 and "layers" in name}
    assert changed == matrices
    assert torch.equal(model(TOKENS), exact)


@torch.no_grad()
@pytest.mark.parametrize("variant", ["softmax", "diff_v1"])
def test_the_cache_is_quantized_in_the_context_and_restored(variant: str) -> None:
    model = small(variant)
    exact = model(TOKENS)
    with quantized_cache(model, 16):
        torch.testing.assert_close(model(TOKENS), exact, rtol=0, atol=2e-3)
    with quantized_cache(model, 4):
        output = model(TOKENS)
        cache = PrefixCache(TOKENS.shape[1])
        parts = [model(TOKENS[:, t : t + 1], cache=cache) for t in range(TOKENS.shape[1])]
    assert not torch.allclose(output, exact, atol=1e-3)
    torch.testing.assert_close(torch.cat(parts, dim=1), output, rtol=1e-4, atol=1e-4)
    assert torch.equal(model(TOKENS), exact)


def test_cached_values_are_on_the_grid() -> None:
    inner = PrefixCache(5)
    keys, values = numbers(0)[None], numbers(1)[None]
    cache = QuantizingCache(inner, 4)
    quantized = cache.update(keys, values, 0)
    for exact, rounded in zip((keys, values), quantized, strict=True):
        assert torch.equal(rounded, fake_quantize_affine(exact, 4))
    assert cache.get_seq_length() == inner.get_seq_length() == 4
    for row in torch.cat(quantized).flatten(0, 2):
        assert len(torch.unique(row)) <= 16


def logits(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, 5, 5, generator=generator) * 10


@given(st.integers(0, 2**16), st.sampled_from([2, 4, 6, 8, 16]), st.sampled_from(["head", "row"]))
def test_error_of_logits_is_at_most_half_a_step_of_the_group(
    seed: int, bits: int, granularity: Granularity
) -> None:
    exact = torch.where(CAUSAL_MASK, logits(seed), 0.0)
    quantized = absmax_quantizer(bits, granularity)(logits(seed), CAUSAL_MASK)
    step = exact.abs().amax(GROUPS[granularity], keepdim=True) / (2 ** (bits - 1) - 1)
    rounding = 4 * torch.finfo(torch.float32).eps * exact.abs()
    assert ((quantized - exact).abs() <= 0.5 * step + rounding).all()
    levels = (quantized / step)[CAUSAL_MASK.expand_as(quantized)]
    torch.testing.assert_close(levels, levels.round(), rtol=1e-5, atol=1e-5)
    assert levels.abs().max().round() == 2 ** (bits - 1) - 1


@pytest.mark.parametrize("granularity", ["head", "row"])
def test_other_sequences_of_the_batch_change_nothing(granularity: Granularity) -> None:
    tap, both = absmax_quantizer(4, granularity), logits(1)
    assert torch.equal(tap(both, CAUSAL_MASK)[:1], tap(both[:1], CAUSAL_MASK))


def test_masked_logits_set_no_scale_and_zeros_stay() -> None:
    hidden = torch.where(CAUSAL_MASK, logits(2), 1e6)
    assert torch.equal(
        absmax_quantizer(6, "row")(hidden, CAUSAL_MASK),
        absmax_quantizer(6, "row")(logits(2), CAUSAL_MASK),
    )
    assert torch.equal(
        absmax_quantizer(4, "row")(torch.zeros(1, 1, 5, 5), CAUSAL_MASK), torch.zeros(1, 1, 5, 5)
    )
