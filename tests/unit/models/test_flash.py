"""flash-attn as it is called: no card is here, so its functions are stood in for by their sums."""

import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from difftransformer.errors import BackendError
from difftransformer.models.kernels import choose_backend, eager, flash
from difftransformer.models.kernels.flash import flash4


class Called(NamedTuple):
    """How a generation's function was called: widths of keys and of values, and its keywords."""

    widths: tuple[int, int]
    keywords: dict[str, Any]


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    rows = (x.double().transpose(1, 2) for x in (q, k, v))
    return eager.attention(*rows, scale=scale, mask=None).to(q.dtype).contiguous()


def differentiate(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor, scale: float
) -> tuple[Tensor, ...]:
    """Gradients by the formula; where an operation of torch runs, autograd does not look."""
    q, k, v, grad = (x.transpose(1, 2) for x in (q, k, v, grad))
    weights = eager.attention_map(q, k, scale=scale, mask=None)
    slope = grad @ v.mT
    slope = scale * weights * (slope - (slope * weights).sum(-1, keepdim=True))
    return tuple(x.transpose(1, 2) for x in (slope @ k, slope.mT @ q, weights.mT @ grad))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Called]:
    """All generations, as their documentation or, of the fourth, their sources have them."""
    calls: list[Called] = []

    def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, **keywords: Any) -> Tensor:
        assert keywords["causal"]
        calls.append(Called((q.shape[-1], v.shape[-1]), keywords))
        return attend(q, k, v, keywords["softmax_scale"])

    def forward(q: Tensor, k: Tensor, v: Tensor, **keywords: Any) -> tuple[Tensor | None, ...]:
        out = flash_attn_func(q, k, v, **keywords)
        return out, out.new_zeros(q.shape[0], q.shape[2], q.shape[1]).float(), None

    def backward(
        q: Tensor, k: Tensor, v: Tensor, out: Tensor, grad: Tensor, lse: Tensor, **keywords: Any
    ) -> tuple[Tensor, ...]:
        assert keywords["causal"] and lse.dtype == torch.float32
        calls.append(Called((q.shape[-1], v.shape[-1]), keywords))
        made = [keywords[name] for name in ("dq", "dk", "dv")]
        grads = differentiate(q, k, v, grad, keywords["softmax_scale"])
        return tuple(buffer.copy_(grad) for buffer, grad in zip(made, grads, strict=True))

    fake_modules = {
        "flash_attn": {"flash_attn_func": flash_attn_func},
        "flash_attn_interface": {"flash_attn_func": flash_attn_func},
        "flash_attn.cute": {},
        "flash_attn.cute.interface": {"_flash_attn_fwd": forward, "_flash_attn_bwd": backward},
    }
    for name, functions in fake_modules.items():
        module = types.ModuleType(name)
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(flash, "_is_half_on_cuda", lambda q: True)
    monkeypatch.setattr(
        flash, "_max_value_dim", lambda: 0
    )  # a card that wants values as wide as keys
    return calls


@pytest.fixture(params=[2, 4])
def generation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(flash, "_installed", lambda: request.param)
    version: int = request.param
    return version


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        (None, r"flash-attn is not installed; pip install"),
        ("flash_attn/__init__.py", "half precision only"),
        ("", "half precision only"),
    ],
)
def test_a_gpu_needs_the_package_and_half_precision(
    monkeypatch: pytest.MonkeyPatch, origin: str | None, message: str
) -> None:
    spec = None if origin is None else ModuleSpec("flash_attn", None, origin=origin or None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    monkeypatch.setattr(flash, "_installed", flash._installed.__wrapped__)
    with pytest.raises(BackendError, match=message):
        choose_backend("flash_attn", "cuda", "fp32")
    if origin is not None:
        assert choose_backend("flash_attn", "cuda", "bf16") == "flash_attn"
    for precision in ("bf16", "fp32"):
        assert choose_backend("auto", "cuda", precision) == "sdpa"  # no card was measured with it


def test_version_3_is_detected_by_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"flash_attn_interface": ModuleSpec("flash_attn_interface", None)}
    monkeypatch.setattr("importlib.util.find_spec", installed.get)
    monkeypatch.setattr(flash, "_installed", flash._installed.__wrapped__)
    assert flash.generation() == 3
    assert choose_backend("auto", "cuda", "bf16") == "sdpa"
    assert choose_backend("flash_attn", "cuda", "bf16") == "flash_attn"


def test_unsupported_inputs_raise() -> None:
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(BackendError, match="takes no mask; use sdpa"):
        flash.attention(q, q, q, scale=1.0, mask=torch.ones(1, 1, 3, 3, dtype=torch.bool))
    with pytest.raises(BackendError, match=r"got torch\.float32 on cpu; set precision bf16"):
        flash.attention(q, q, q, scale=1.0, mask=None)


def test_too_wide_heads_raise(generation: int, calls: list[Called]) -> None:
    q, v, lam = torch.zeros(1, 2, 3, 192), torch.zeros(1, 1, 3, 384), torch.tensor(0.5)
    with pytest.raises(BackendError, match="at most 256, got 384: use sdpa"):
        flash.differential_attention(q, q, v, lam, scale=1.0, mask=None)
    assert not calls


@pytest.mark.parametrize("new", [9, 4, 1])
@pytest.mark.parametrize("differential", [False, True])
def test_flash_attn_computes_the_same_attention(
    generation: int, calls: list[Called], new: int, differential: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    heads, width = ((8, 4, 2), 32) if differential else ((4, 2, 2), 24)
    q, k, v = (
        torch.randn(2, count, 9, size, generator=generator, dtype=torch.double)
        for count, size in zip(heads, (16, 16, width), strict=True)
    )
    rest = {"lam": torch.tensor(0.7)} if differential else {}
    keywords = {"scale": 0.3, "mask": None, **rest}
    name = "differential_attention" if differential else "attention"
    actual = getattr(flash, name)(q[:, :, -new:], k, v, **keywords)
    expected = getattr(eager, name)(q[:, :, -new:], k, v, **keywords)
    torch.testing.assert_close(actual[..., :width], expected)
    assert [call.widths for call in calls] == [] if differential and new == 1 else [(width, width)]


def test_deterministic_algorithms_are_requested(generation: int, calls: list[Called]) -> None:
    q = torch.zeros(1, 2, 3, 8, requires_grad=True)

    def is_deterministic() -> bool:
        calls.clear()
        flash.attention(q, q, q, scale=1.0, mask=None).sum().backward()
        (flag,) = (
            call.keywords["deterministic"] for call in calls if "deterministic" in call.keywords
        )
        return bool(flag)

    torch.set_deterministic_debug_mode("error")
    try:
        assert is_deterministic()
    finally:
        torch.set_deterministic_debug_mode("default")
    assert not is_deterministic()


@pytest.mark.parametrize(
    ("installed", "widest", "d", "groups", "graded", "widths"),
    [
        (4, 256, 128, 2, True, [(128, 256)] * 2),
        (4, 256, 128, 1, True, [(256, 256)]),
        (4, 256, 128, 1, False, [(128, 256)] * 2),
        (4, 128, 64, 2, True, [(64, 128)] * 2),
        (4, 128, 128, 2, True, [(256, 256)]),
        (3, 0, 64, 1, False, [(64, 128)] * 2),
        (3, 0, 64, 1, True, [(128, 128)]),
        (3, 0, 128, 1, False, [(256, 256)]),
        (2, 0, 64, 1, False, [(128, 128)]),
    ],
)
def test_wide_values_are_passed_unpadded_if_supported(
    calls: list[Called],
    monkeypatch: pytest.MonkeyPatch,
    installed: int,
    widest: int,
    d: int,
    groups: int,
    graded: bool,
    widths: list[tuple[int, int]],
) -> None:
    monkeypatch.setattr(flash, "_installed", lambda: installed)
    monkeypatch.setattr(flash, "_max_value_dim", lambda: widest)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, heads, 5, width, generator=generator).requires_grad_(graded)
        for heads, width in ((4, d), (2 * groups, d), (groups, 2 * d))
    )
    keywords: dict[str, Any] = {"scale": 0.1, "mask": None}
    lam = torch.tensor(0.7)
    actual = flash.differential_attention(q, k, v, lam, **keywords)
    torch.testing.assert_close(actual, eager.differential_attention(q, k, v, lam, **keywords))
    assert [call.widths for call in calls] == widths


@pytest.mark.parametrize(("major", "widest"), [(8, 0), (9, 256), (10, 128), (12, 0)])
def test_compute_capability_limits_the_value_width(
    monkeypatch: pytest.MonkeyPatch, major: int, widest: int
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (major, 0))
    assert flash._max_value_dim() == widest


def test_version_4_is_a_custom_operation(
    calls: list[Called], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flash, "_installed", lambda: 4)
    monkeypatch.setattr(flash, "_max_value_dim", lambda: 256)
    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(2, heads, 5, width, generator=generator).requires_grad_()
        for heads, width in ((4, 8), (4, 8), (2, 16))
    ]
    inputs.append(torch.tensor(0.7, requires_grad=True))
    keywords: dict[str, Any] = {"scale": 0.1, "mask": None}
    compiled = torch.compile(flash.differential_attention, backend="aot_eager", fullgraph=True)
    functions = (compiled, eager.differential_attention)
    outs = [function(*inputs, **keywords) for function in functions]
    probe = torch.randn(outs[0].shape, generator=generator)
    grads, expected_grads = (torch.autograd.grad(out, inputs, probe) for out in outs)
    torch.testing.assert_close([outs[0], *grads], [outs[1], *expected_grads])
    assert [call.widths for call in calls] == [(8, 16)] * 4
    rows = [x.detach().transpose(1, 2).requires_grad_() for x in inputs[:3]]
    halves = (rows[0][:, :, ::2], rows[1][:, :, ::2], rows[2], 0.1, False)
    torch.library.opcheck(flash4._attend, halves)
    again = flash.differential_attention(*inputs, **keywords)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.grad(again.sum(), inputs, create_graph=True)
