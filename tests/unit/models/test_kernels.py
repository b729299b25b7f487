import json
import logging
from pathlib import Path

import pytest
import torch

from difftransformer.errors import BackendError
from difftransformer.models.kernels import (
    blocked,
    choose_backend,
    cpu_dispatch,
    eager,
    get_kernel,
    sdpa,
)

RECORDS = Path(__file__).parents[3] / "benchmarks" / "records"


def test_auto_logs_the_backend_it_picks(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert choose_backend("auto", "cpu") == "cpu_dispatch"
    assert "auto: picked cpu_dispatch on cpu" in caplog.text
    assert choose_backend("auto", torch.device("cuda", 0), "fp32") == "sdpa"


@pytest.mark.parametrize("name", ["eager", "blocked", "sdpa"])
def test_a_named_backend_is_returned(name: str) -> None:
    assert choose_backend(name, torch.device("cpu")) == name


@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 300), (128, 128), (256, 256), (300, 512), (1024, 1024), (512, 2048)]
)
def test_auto_uses_the_backend_that_the_benchmark_found_faster(
    queries: int, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    for module in (blocked, sdpa):
        name = module.__name__.rsplit(".", maxsplit=1)[-1]
        monkeypatch.setattr(module, "attention", lambda *_, name=name, **__: taken.append(name))
    q, k = torch.zeros(1, 1, queries, 4), torch.zeros(1, 1, keys, 4)
    get_kernel(choose_backend("auto", "cpu")).attention(q, k, k, scale=1.0, mask=None)
    record = max(RECORDS.glob("attention_backends-*.json"))
    means = json.loads(record.read_text())["means"]
    if queries == keys:
        faster = "blocked" if means["attention"][str(queries)] > 1 else "sdpa"
        assert taken == [faster]
    else:
        assert taken == ["blocked" if (queries, keys) == (300, 512) else "sdpa"]
    for other in ("attention_with_lse", "differential_attention"):
        assert min(means[other].values()) > 1
    assert cpu_dispatch.attention_with_lse is blocked.attention_with_lse
    assert cpu_dispatch.differential_attention is blocked.differential_attention


def test_an_unavailable_backend_names_an_alternative() -> None:
    with pytest.raises(BackendError, match=r"needs an NVIDIA GPU and the device is cpu; use sdpa"):
        choose_backend("flash_attn", "cpu", "bf16")
    with pytest.raises(BackendError, match="unknown backend 'flash'; did you mean 'flash_attn'"):
        choose_backend("flash", "cpu")
    with pytest.raises(BackendError, match="auto must be resolved first: call choose_backend"):
        get_kernel("auto")


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("backend", ["eager", "blocked", "sdpa"])
def test_half_precision_does_not_round_the_logits(backend: str, queries: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(16, heads, rows, width, generator=generator).bfloat16()
        for heads, rows, width in ((2, queries, 128), (2, 512, 128), (1, 512, 256))
    )
    options = {"lam": torch.tensor(0.3), "scale": 1.0, "mask": None}  # logits up to 40
    exact = eager.differential_attention(*(x.double() for x in (q, k, v)), **options)
    with torch.autocast("cpu", torch.bfloat16):
        actual = get_kernel(backend).differential_attention(q, k, v, **options)
    error = (actual.double() - exact).norm() / exact.norm()
    assert error < 2**-8


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("backend", ["blocked", "sdpa"])
def test_a_single_query_does_not_copy_keys(
    backend: str, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch, "cat")
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 8, 1, 16, generator=generator)
    k = torch.randn(2, 4, 12, 16, generator=generator)[:, :, :9]  # part of a larger buffer
    v = torch.randn(2, 2, 12, 32, generator=generator)[:, :, :9]
    mask = torch.arange(9).view(1, 1, 1, 9) > torch.tensor([2, 5]).view(2, 1, 1, 1)
    options = {"scale": 0.3, "mask": mask if masked else None}
    lam = torch.tensor(0.7)
    expected = eager.differential_attention(q, k, v, lam, **options)
    torch.testing.assert_close(
        get_kernel(backend).differential_attention(q, k, v, lam, **options), expected
    )


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_single_query_lse_equals_the_formula(groups: int, masked: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(2, heads, rows, width, generator=generator, dtype=torch.float64)
        for heads, rows, width in ((4, 1, 8), (groups, 9, 8), (groups, 9, 6))
    )
    mask = (torch.rand(2, 1, 1, 9, generator=generator) > 0.4).index_fill(-1, torch.tensor(0), True)
    seen = mask if masked else None
    actual = sdpa.single_query_with_lse(q, k, v, 0.3, seen)
    torch.testing.assert_close(actual, eager.attention_with_lse(q, k, v, scale=0.3, mask=seen))
