import json
import logging
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from difftransformer.errors import BackendError
from difftransformer.models.kernels import (
    blocked,
    choose_backend,
    eager,
    flash,
    kernel,
    measured,
    sdpa,
)

RECORDS = Path(__file__).parents[3] / "benchmarks" / "records"


def test_auto_picks_and_says_what_it_picked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert choose_backend("auto", "cpu") == "measured"
    assert "auto: picked measured on cpu in fp32" in caplog.text
    assert choose_backend("auto", torch.device("cuda", 0), "fp32") == "sdpa"


@pytest.mark.parametrize("name", ["eager", "blocked", "sdpa"])
def test_a_named_backend_is_taken(name: str) -> None:
    assert choose_backend(name, torch.device("cpu")) == name


@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 300), (128, 128), (256, 256), (300, 512), (1024, 1024), (512, 2048)]
)
def test_auto_takes_the_backend_that_the_record_has_as_the_faster_one(
    queries: int, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    for module in (blocked, sdpa):
        name = module.__name__.rsplit(".", maxsplit=1)[-1]
        monkeypatch.setattr(module, "attention", lambda *_, name=name, **__: taken.append(name))
    q, k = torch.zeros(1, 1, queries, 4), torch.zeros(1, 1, keys, 4)
    kernel(choose_backend("auto", "cpu")).attention(q, k, k, scale=1.0, mask=None)
    record = max(RECORDS.glob("attention_backends-*.json"))
    means = json.loads(record.read_text())["means"]
    if queries == keys:
        faster = "blocked" if means["attention"][str(queries)] > 1 else "sdpa"
        assert taken == [faster]
    else:
        assert taken == ["blocked" if (queries, keys) == (300, 512) else "sdpa"]
    for other in ("attention_with_lse", "differential_attention"):
        assert min(means[other].values()) > 1
    assert measured.attention_with_lse is blocked.attention_with_lse
    assert measured.plain() == measured.differential() == "blocked"  # as assumed, in tests


def test_what_cannot_run_is_refused_with_the_way_out() -> None:
    with pytest.raises(BackendError, match=r"needs an NVIDIA GPU and the device is cpu; take sdpa"):
        choose_backend("flash_attn", "cpu", "bf16")
    with pytest.raises(BackendError, match="unknown backend 'flash'; did you mean 'flash_attn'"):
        choose_backend("flash", "cpu")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, r"flash-attn is not installed; pip install"),
        ("flash_attn/__init__.py", "half precision only"),
        ("", "half precision only"),
    ],
)
def test_flash_attn_on_a_gpu_needs_the_package_and_half_precision(
    monkeypatch: pytest.MonkeyPatch, found: str | None, message: str
) -> None:
    spec = None if found is None else ModuleSpec("flash_attn", None, origin=found or None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    monkeypatch.setattr(flash, "generation", flash.generation.__wrapped__)
    with pytest.raises(BackendError, match=message):
        choose_backend("flash_attn", "cuda", "fp32")
    if found is not None:
        assert choose_backend("flash_attn", "cuda", "bf16") == "flash_attn"
        assert choose_backend("auto", "cuda", "bf16") == ("flash_attn" if found else "sdpa")
        assert choose_backend("auto", "cuda", "fp32") == "sdpa"


def test_flash_attn_refuses_what_it_cannot_compute() -> None:
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(BackendError, match="takes no padding mask; take sdpa"):
        flash.attention(q, q, q, scale=1.0, mask=torch.ones(1, 1, 3, 3, dtype=torch.bool))
    with pytest.raises(BackendError, match=r"got torch\.float32 on cpu; set precision bf16"):
        flash.attention(q, q, q, scale=1.0, mask=None)


@pytest.fixture(params=[2, 4])
def flash_calls(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, object]]:
    """flash-attn's function as its documentation has it, in float64; gives its keywords."""
    calls: list[dict[str, object]] = []

    def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Any:
        assert given["causal"] and q.shape[-1] == k.shape[-1] == v.shape[-1]
        calls.append(given)
        rows = (x.double().transpose(1, 2) for x in (q, k, v))
        out = eager.attention(*rows, scale=given["softmax_scale"], mask=None)
        return out.to(q.dtype) if request.param == 2 else (out.to(q.dtype), None)

    package, part = types.ModuleType("flash_attn"), types.ModuleType("flash_attn.cute")
    for module in (package, part):
        monkeypatch.setattr(module, "flash_attn_func", flash_attn_func, raising=False)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(flash, "generation", lambda: request.param)
    monkeypatch.setattr(flash, "_computes", lambda q: True)
    monkeypatch.setattr(flash, "_major", lambda q: 8)  # a card that wants values as wide as keys
    return calls


def test_flash_attn_refuses_heads_that_it_has_no_kernel_for(
    flash_calls: list[dict[str, object]],
) -> None:
    q, v, lam = torch.zeros(1, 2, 3, 192), torch.zeros(1, 1, 3, 384), torch.tensor(0.5)
    with pytest.raises(BackendError, match="no kernel for heads of 384, 256 at most: take sdpa"):
        flash.differential_attention(q, q, v, lam, scale=1.0, mask=None)
    assert not flash_calls


@pytest.mark.parametrize("new", [9, 4, 1])
@pytest.mark.parametrize("differential", [False, True])
def test_flash_attn_is_called_for_the_same_sums(
    flash_calls: list[dict[str, object]], new: int, differential: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    heads, width = ((8, 4, 2), 32) if differential else ((4, 2, 2), 24)
    q, k, v = (
        torch.randn(2, count, 9, size, generator=generator, dtype=torch.double)
        for count, size in zip(heads, (16, 16, width), strict=True)
    )
    rest = {"lam": torch.tensor(0.7)} if differential else {}
    given = {"scale": 0.3, "mask": None, **rest}
    name = "differential_attention" if differential else "attention"
    found = getattr(flash, name)(q[:, :, -new:], k, v, **given)
    expected = getattr(eager, name)(q[:, :, -new:], k, v, **given)
    torch.testing.assert_close(found[..., :width], expected)
    assert len(flash_calls) == (0 if differential and new == 1 else 1)


def test_flash_attn_is_told_to_repeat_its_bits(flash_calls: list[dict[str, object]]) -> None:
    q = torch.zeros(1, 2, 3, 4)
    torch.set_deterministic_debug_mode("error")
    try:
        flash.attention(q, q, q, scale=1.0, mask=None)
    finally:
        torch.set_deterministic_debug_mode("default")
    flash.attention(q, q, q, scale=1.0, mask=None)
    assert [one["deterministic"] for one in flash_calls] == [True, False]


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("backend", ["eager", "blocked", "sdpa"])
def test_half_precision_does_not_round_the_logits(backend: str, queries: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(16, heads, rows, width, generator=generator).bfloat16()
        for heads, rows, width in ((2, queries, 128), (2, 512, 128), (1, 512, 256))
    )
    given = {"lam": torch.tensor(0.3), "scale": 1.0, "mask": None}  # logits up to 40
    exact = eager.differential_attention(*(x.double() for x in (q, k, v)), **given)
    with torch.autocast("cpu", torch.bfloat16):
        found = kernel(backend).differential_attention(q, k, v, **given)
    error = (found.double() - exact).norm() / exact.norm()
    assert error < 2**-8


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("backend", ["blocked", "sdpa"])
def test_one_query_is_answered_from_keys_that_stay_where_they_are(
    backend: str, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch, "cat")
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 8, 1, 16, generator=generator)
    k = torch.randn(2, 4, 12, 16, generator=generator)[:, :, :9]  # part of a larger buffer
    v = torch.randn(2, 2, 12, 32, generator=generator)[:, :, :9]
    mask = torch.arange(9).view(1, 1, 1, 9) > torch.tensor([2, 5]).view(2, 1, 1, 1)
    given = {"scale": 0.3, "mask": mask if masked else None}
    lam = torch.tensor(0.7)
    expected = eager.differential_attention(q, k, v, lam, **given)
    torch.testing.assert_close(
        kernel(backend).differential_attention(q, k, v, lam, **given), expected
    )
