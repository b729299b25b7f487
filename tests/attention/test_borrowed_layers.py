"""Layers with plain arguments: every variant, by the name that a user imports."""

import copy
import io
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_layers import FITTING

import difftransformer
from difftransformer import (
    AttentionLayer,
    DifferentialAttention,
    DifferentialAttentionV2,
    KeyValueCache,
    SoftmaxAttention,
)
from difftransformer.errors import UserError
from difftransformer.models.attention.registry import attention_class, configure, variants
from difftransformer.models.layers import layer_class, layer_names
from difftransformer.models.rotary import RotaryTable

D = 48
SIZES: dict[str, Any] = {"num_heads": 4, "head_dim": 6, "num_kv_heads": 2}


def layer(variant: str, **settings: Any) -> AttentionLayer:
    torch.manual_seed(0)
    options = {**SIZES, "layer_index": 0, **FITTING.get(variant, {}), **settings}
    return layer_class(variant)(D, **options)


def inputs(length: int = 9, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, length, D, generator=torch.Generator().manual_seed(length))


@pytest.mark.parametrize("variant", variants())
def test_a_layer_is_the_models_own(variant: str) -> None:
    """The same weights in the class that models are made of give the same bits."""
    borrowed = layer(variant, layer_index=2, backend="sdpa")
    options = {"variant": variant, **SIZES, **FITTING.get(variant, {})}
    config = configure(options, D)
    own = attention_class(variant)(config, D, 2, "sdpa")
    own.load_state_dict(borrowed.state_dict())
    rope = RotaryTable(6, 10_000.0).span(0, 9, torch.device("cpu"))
    assert torch.equal(borrowed(inputs()), own(inputs(), rope))


@pytest.mark.parametrize("variant", variants())
def test_a_cache_of_several_layers_changes_nothing(variant: str) -> None:
    layers = [layer(variant, layer_index=index) for index in range(2)]
    x, cache, parts = inputs(), KeyValueCache(9), []
    with torch.no_grad():
        for start, stop in ((0, 5), (5, 6), (6, 9)):
            h = x[:, start:stop]
            for decoder_layer in layers:
                h = decoder_layer(h, cache=cache)
            parts.append(h)
        uncached = layers[1](layers[0](x))
    torch.testing.assert_close(torch.cat(parts, dim=1), uncached, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", variants())
def test_a_layer_is_copied_and_pickled(variant: str) -> None:
    attention = layer(variant)
    name = type(attention).__name__
    assert getattr(difftransformer, name) is type(attention) and name in dir(difftransformer)
    for other in (copy.deepcopy(attention), pickle.loads(pickle.dumps(attention))):
        assert torch.equal(other(inputs()), attention(inputs()))


@pytest.mark.parametrize("variant", variants())
def test_a_layer_is_exported_by_torch_export(variant: str) -> None:
    """No Python depends on data: one graph, which servers that trace a model want."""
    attention = layer(variant, backend="sdpa").eval()
    x = inputs()
    with torch.no_grad():
        exported = torch.export.export(attention, (x,)).module()
        torch.testing.assert_close(exported(x), attention(x), rtol=1e-5, atol=1e-5)


def test_masks_and_positions() -> None:
    attention = layer("diff_v1")
    x = inputs(7)
    causal = torch.ones(7, 7).tril().bool().view(1, 1, 7, 7)
    torch.testing.assert_close(attention(x, mask=causal), attention(x), rtol=1e-5, atol=1e-5)
    assert torch.allclose(
        attention(x, positions=torch.arange(7) + 30), attention(x), atol=1e-5
    )  # relative
    assert not torch.allclose(attention(x, positions=2 * torch.arange(7)), attention(x), atol=1e-3)
    without = layer("diff_v1", rope_theta=None)
    swapped = x[:, [1, 0, *range(2, 7)]]
    assert torch.allclose(without(swapped)[:, -1], without(x)[:, -1], atol=1e-5)
    assert not torch.allclose(attention(swapped)[:, -1], attention(x)[:, -1], atol=1e-3)
    causal[:, :, :2] = False  # two queries of padding
    assert attention(x, mask=causal).isfinite().all()
    maps = attention.attention_maps(x)
    assert maps.shape == (2, 4, 7, 7) and (maps < 0).any()


def test_cache_of_transformers_gives_the_uncached_output() -> None:
    from transformers import DynamicCache

    layers = [layer("dint", layer_index=index) for index in range(2)]
    x, cache = inputs(), DynamicCache()
    with torch.no_grad():
        parts = [layers[1](layers[0](p, cache=cache), cache=cache) for p in (x[:, :4], x[:, 4:])]
        uncached = layers[1](layers[0](x))
    torch.testing.assert_close(torch.cat(parts, dim=1), uncached, rtol=1e-4, atol=1e-5)


def test_heads_are_reckoned_from_the_width() -> None:
    assert DifferentialAttention(64, num_heads=4, layer_index=0).head_dim == 8
    assert DifferentialAttentionV2(64, num_heads=4).head_dim == 16
    assert DifferentialAttention(64, head_dim=8, layer_index=0).num_heads == 4
    assert DifferentialAttention(64, num_heads=4, lambda_init=0.5).config.lambda_init == 0.5


def test_sizes_may_be_numpy_scalars() -> None:
    width, two = np.int64(32), np.int64(2)
    for sizes in ({"num_heads": two, "num_kv_heads": two}, {"head_dim": np.int32(8)}):
        attention = DifferentialAttention(
            width, **sizes, layer_index=two, lambda_init=np.float32(0.5)
        )
        assert (attention.num_heads, attention.head_dim, attention.config.lambda_init) == (
            2,
            8,
            0.5,
        )
        assert attention(inputs()[..., :32]).shape == (2, 9, 32)


def test_draws_follow_torchs_seed_alone() -> None:
    first, again = layer("diff_v1"), layer("diff_v1")
    assert torch.equal(first.qkv_proj.weight, again.qkv_proj.weight)
    again.reset_parameters(seed=5)
    assert not torch.equal(first.qkv_proj.weight, again.qkv_proj.weight)


@pytest.mark.parametrize("variant", variants())
def test_device_and_dtype_are_those_of_torchs_modules(variant: str) -> None:
    single, double = layer(variant), layer(variant, device="cpu", dtype=torch.float64)
    assert {parameter.dtype for parameter in double.parameters()} == {torch.float64}
    for mine, theirs in zip(single.parameters(), double.parameters(), strict=True):
        assert torch.equal(mine.double(), theirs)  # drawn once, whatever the type
    assert double(inputs().double()).dtype == torch.float64
    with torch.device("meta"):
        assert layer(variant).o_proj.weight.is_meta
    empty = layer(variant, device="meta", dtype=torch.bfloat16)
    assert {(p.device.type, p.dtype) for p in empty.parameters()} == {("meta", torch.bfloat16)}
    empty = empty.to_empty(device="cpu")
    empty.reset_parameters(seed=5)
    single.reset_parameters(seed=5)
    for mine, theirs in zip(single.parameters(), empty.parameters(), strict=True):
        assert torch.equal(mine.bfloat16(), theirs)


def test_a_first_forward_times_nothing_and_writes_nothing(tmp_path: Path) -> None:
    """In a process of its own, whose clocks refuse and whose home is empty afterwards."""
    code = """
import time, torch
def refuse(*_): raise AssertionError("a forward reads the clock")
time.perf_counter = time.thread_time = time.process_time = refuse
from difftransformer import DifferentialAttention
out = DifferentialAttention(32, num_heads=2, layer_index=0)(torch.randn(1, 300, 32))
out.sum().backward()
"""
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert not [*tmp_path.iterdir()]


def test_the_layer_index_is_required_where_it_decides() -> None:
    x = torch.randn(1, 3, 64)
    for name, variant in layer_names().items():
        by_depth = getattr(attention_class(variant).config_class, "lambda_init", 0) == "exponential"
        if by_depth:
            with pytest.raises(UserError, match=rf"{name}.layer_index: missing"):
                layer_class(variant)(64, num_heads=4)
        attention = layer_class(variant)(
            64, num_heads=4, **({"lambda_init": 0.4} if by_depth else {})
        )
        assert attention(x).shape == x.shape
        with pytest.raises(UserError, match=rf"{name}.layer_index: missing"):
            attention(x, cache=KeyValueCache(3))
    starts = [DifferentialAttention(64, num_heads=4, layer_index=i).lambda_init for i in (0, 1)]
    assert starts == pytest.approx([0.2, 0.8 - 0.6 * math.exp(-0.3)])
    assert SoftmaxAttention(64, num_heads=4, layer_index=np.int64(2)).layer_index == 2


def test_auto_picks_again_after_a_cast(caplog: pytest.LogCaptureFixture) -> None:
    attention = layer("diff_v1")
    assert attention.backend == "cpu_dispatch"
    with caplog.at_level("INFO"):
        attention.to(torch.bfloat16)
    assert "picked cpu_dispatch on cpu" in caplog.text
    assert attention(inputs().bfloat16()).dtype == torch.bfloat16


WRONG = [
    (lambda: DifferentialAttention(64), "pass num_heads or head_dim"),
    *((lambda index=index: DifferentialAttention(64, num_heads=4, layer_index=index),
       "DifferentialAttention.layer_index: needs a whole number from 0, got")
      for index in (-1, 1.5, "0")),
    (lambda: DifferentialAttention(64, num_heads=5), r"num_heads: 5 heads of 2d"),
    (lambda: DifferentialAttention(64, num_heads="4"), r"num_heads: needs a number of heads"),
    (lambda: DifferentialAttention(64, num_heads=4, num_kv_heads=3), "3 does not divide"),
    (lambda: DifferentialAttention(64, num_heads=4, lambda_int=1), "did you mean 'lambda_init'"),
    (lambda: DifferentialAttention(64, num_heads=4, variant="dint"), "leave `variant` out"),
    (lambda: DifferentialAttention(64, num_heads=4, backend="sdpaa"), "did you mean 'sdpa'"),
    (lambda: DifferentialAttention(64, head_dim=8, layer_index=0, backend="flash_attn")(
        torch.randn(1, 2, 64)), "device is cpu"),
    (lambda: DifferentialAttention(64, head_dim=7), "head_dim"),
    (lambda: layer("dint")(torch.randn(3, 64)), r"\[3, 64\]"),
    (lambda: layer("dint")(torch.randn(1, 3, 32)), r"\[1, 3, 32\]"),
    (lambda: layer("dint")(torch.randn(1, 3, D), mask=torch.ones(3, 3)), "torch.bool"),
    (lambda: layer("dint")(
        torch.randn(1, 3, D), mask=torch.ones(1, 4, 3, 3, dtype=torch.bool)),
     r"expected torch.bool \[batch or 1, 1, 3, 3\]"),
    (lambda: layer("softmax")(torch.randn(1, 3, D), cache=KeyValueCache(2)),
     "capacity of 2 positions and would hold 3"),
    (lambda: SoftmaxAttention(64, num_heads=4)(
        torch.randn(1, 3, 64), positions=torch.arange(4)),
     r"torch.int64 \[4\], expected integers \[3\] or \[1 or 1, 3\]"),
    (lambda: SoftmaxAttention(64, num_heads=4)(
        torch.randn(1, 3, 64), positions=torch.arange(3.0)),
     r"positions are torch.float32 \[3\], expected integers"),
    (lambda: SoftmaxAttention(64, num_heads=4, rope_theta=None)(
        torch.randn(1, 3, 64), positions=torch.arange(3)),
     "positions have no effect with rope_theta None"),
    (lambda: SoftmaxAttention(64, num_heads=4)(
        torch.randn(1, 3, 64), rope=(torch.ones(3, 16), torch.zeros(3, 16)),
        positions=torch.arange(3)),
     "rope and positions exclude each other"),
    (lambda: DifferentialAttention(64, num_heads=4, layer_index=0)(
        torch.randn(1, 4, 64), positions=torch.arange(4) - 1), "the lowest position is -1"),
    (lambda: SoftmaxAttention(64, num_heads=4)(torch.randn(1, 0, 64)), r"shape \[1, 0, 64\]"),
    (lambda: layer_class("dif_v1"), "did you mean 'diff_v1'"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "why"), WRONG)
def test_invalid_calls_raise_one_line_errors(call: Any, why: str) -> None:
    with pytest.raises(UserError, match=why) as refusal:
        call()
    assert "\n" not in str(refusal.value)


def test_missing_attributes_raise() -> None:
    for name in ("DifferentialAttentionV9", "something"):
        with pytest.raises(AttributeError, match=name):
            getattr(difftransformer, name)
    assert len(layer_names()) == len(variants())


def test_the_package_alone_imports_no_torch() -> None:
    code = "import sys, difftransformer; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_state_dict_goes_through_a_file() -> None:
    source, file = layer("diff_v2"), io.BytesIO()
    torch.save(source.state_dict(), file)
    file.seek(0)
    loaded = DifferentialAttentionV2(D, **SIZES)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(loaded(inputs()), source(inputs()))
