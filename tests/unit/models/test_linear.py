"""Products of the CPU against float64, whichever library computes them."""

import textwrap
from typing import Any

import pytest
import torch
from preloaded import python
from torch import Tensor

from difftransformer.errors import ConfigError
from difftransformer.models import linear
from difftransformer.models.linear import MATMUL, MATMUL_BACKENDS


def pair(rows: int, inputs: int = 48, outputs: int = 80) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(2, rows, inputs, generator=generator)
    return x.requires_grad_(), torch.randn(outputs, inputs, generator=generator).requires_grad_()


def outcome(x: Tensor, weight: Tensor) -> list[Tensor]:
    """Return the product and the gradients of its weighted sum, in float64."""
    out = linear.linear(x, weight)
    factors = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return [t.double() for t in (out, *torch.autograd.grad((out * factors).sum(), (x, weight)))]


@pytest.fixture(params=MATMUL_BACKENDS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Multiply by one backend."""
    if request.param == "onednn" and not linear.onednn_works():
        pytest.skip("torch has no oneDNN matmul here")
    monkeypatch.setenv(MATMUL, request.param)
    return str(request.param)


@pytest.mark.parametrize(
    ("capability", "sound", "forced", "taken"),
    [
        ("AVX512", True, "", "onednn"),
        ("AVX512", True, "torch", "torch"),
        ("AVX512", False, "", "torch"),
        ("AVX2", True, "", "torch"),
        ("AVX2", True, "onednn", "onednn"),
        ("SVE256", False, "", "torch"),
    ],
)
def test_the_matmul_backend_follows_the_processor_or_the_environment(
    capability: str, sound: bool, forced: str, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(linear, "onednn_works", lambda: sound)
    monkeypatch.setenv(MATMUL, forced)
    assert linear.matmul_backend() == taken


def test_unknown_matmul_backend_raises_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "onednn_works", lambda: False)
    for name, reason in [("onednn", "onednn cannot run"), ("onednnn", "did you mean 'onednn'")]:
        monkeypatch.setenv(MATMUL, name)
        with pytest.raises(ConfigError, match=f"{MATMUL}: .*{reason}") as refusal:
            linear.matmul_backend()
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("rows", [1, 16, 67])
@pytest.mark.parametrize("outputs", [32, 80])
def test_linear_and_gradients_equal_float64(rows: int, outputs: int, way: str) -> None:
    x, weight = pair(rows, outputs=outputs)
    for actual, expected in zip(
        outcome(x, weight), outcome(x.double(), weight.double()), strict=True
    ):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-4)


def test_any_strides_and_zero_rows_are_supported() -> None:
    x, weight = (tensor.detach() for tensor in pair(40))
    flat = x.flatten(0, 1)
    torch.testing.assert_close(linear.linear_no_grad(flat[::2], weight), flat[::2] @ weight.T)
    torch.testing.assert_close(linear.linear_no_grad(flat.T, flat.T), flat.T @ flat)
    assert linear.linear_no_grad(flat[:0], weight).shape == (0, 80)


def test_a_step_is_the_same_bits_each_time() -> None:
    assert all(map(torch.equal, outcome(*pair(67)), outcome(*pair(67))))


def test_autocast_decides_the_precision() -> None:
    x, weight = pair(40)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear.linear(x, weight).dtype == torch.bfloat16


@pytest.mark.skipif(not linear.onednn_works(), reason="torch has no oneDNN matmul here")
@pytest.mark.parametrize("wanted", [[0], [1], [0, 1]])
def test_only_required_gradients_are_computed(
    wanted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MATMUL, "onednn")
    tensors = [
        tensor.detach().requires_grad_(index in wanted) for index, tensor in enumerate(pair(40))
    ]
    out = linear.linear(*tensors)
    computed, onednn = list[int](), linear._onednn

    def counted(x: Tensor, weight: Tensor) -> Tensor:
        actual = onednn(x, weight)
        computed.append(actual.numel())
        return actual

    monkeypatch.setattr(linear, "_onednn", counted)
    out.sum().backward()
    assert computed == [tensors[index].numel() for index in wanted]


class OnACard(Tensor):
    """A tensor that says it lies on a card; what is computed of it is an ordinary one."""

    is_cuda = True

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.dtype.__get__ or func is Tensor.requires_grad.__get__:
            return super().__torch_function__(func, types, args, kwargs)
        plain = [arg.as_subclass(Tensor) if isinstance(arg, OnACard) else arg for arg in args]
        return func(*plain, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("widens", [True, False])
@pytest.mark.parametrize("learns", [True, False])
def test_bmm_fp32_does_not_copy_factors_if_the_gpu_supports_it(
    dtype: torch.dtype, widens: bool, learns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def bmm(x: Tensor, y: Tensor, *, out_dtype: torch.dtype) -> Tensor:
        assert x.dtype in (torch.bfloat16, torch.float16), "torch refuses it"
        taken.append(y.data_ptr())
        return x.to(out_dtype) @ y.to(out_dtype)

    x, y = torch.randn(3, 2, 8).to(dtype), torch.randn(3, 8, 40).to(dtype)
    expected = x.double() @ y.double()
    monkeypatch.setattr(linear, "_bmm_supports_fp32_out", lambda: widens)
    monkeypatch.setattr(torch, "bmm", bmm)
    on_gpu = [tensor.requires_grad_(learns).as_subclass(OnACard) for tensor in (x, y)]
    actual = linear.bmm_fp32(*on_gpu)
    assert actual.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)
    passed_uncopied = widens and not learns and dtype != torch.float64
    assert taken == ([y.data_ptr()] if passed_uncopied else [])


def test_gpu_support_is_a_constant_of_a_compiled_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def widens(_multiply: object, shape: tuple[int, ...]) -> bool:
        return len(shape) == 3 and bool(torch.ones(shape).sum() > 0)  # no graph has such a branch

    monkeypatch.setattr(linear, "_supports_fp32_out", widens)

    def add_support(x: Tensor) -> Tensor:
        return x + 2 * linear._bmm_supports_fp32_out() + 4 * linear._mm_supports_fp32_out()

    compiled = torch.compile(add_support, fullgraph=True, backend="eager")
    assert torch.equal(compiled(torch.zeros(3)), torch.full((3,), 2.0))


def run(code: str) -> str:
    """Run code in a process of its own."""
    ended = python("-c", textwrap.dedent(code))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


WITHOUT = """
import sys, types, torch

class Without:
    "The operations of torch, as they are once private ones are gone."
    def __init__(self, there): self.there = there
    def __getattr__(self, name):
        if name.startswith("_linear") or name.startswith("_scaled_dot_product_flash"):
            raise AttributeError(name)
        return getattr(self.there, name)

torch.ops.mkldnn, torch.ops.aten = Without(torch.ops.mkldnn), Without(torch.ops.aten)
"""
WRONG = """
import torch

class Wrong:
    "The operations of torch, private ones with another meaning."
    def __init__(self, there): self.there = there
    def __getattr__(self, name):
        found = getattr(self.there, name)
        if name.startswith("_linear"):
            return lambda *given: found(*given) + 1
        if name.startswith("_scaled_dot_product_flash") and not name.endswith("backward"):
            return lambda *given, **named: tuple(2 * one for one in found(*given, **named))
        return found

torch.ops.mkldnn, torch.ops.aten = Wrong(torch.ops.mkldnn), Wrong(torch.ops.aten)
"""


@pytest.mark.parametrize("spoiled", [WITHOUT, WRONG], ids=["gone", "another meaning"])
def test_results_do_not_depend_on_private_torch_operations(spoiled: str) -> None:
    code = """
    from difftransformer.models import linear
    from difftransformer.models.kernels import sdpa
    torch.manual_seed(0)
    x, weight = torch.randn(64, 32, requires_grad=True), torch.randn(48, 32, requires_grad=True)
    out = linear.linear(x, weight)
    q, k, v = (torch.randn(2, 2, 40, 16, requires_grad=True) for _ in range(3))
    context, lse = sdpa.attention_with_lse(q, k, v, scale=0.25, mask=None)
    loss = (out ** 2).mean() + (context ** 2).sum() + (lse ** 2).mean()
    loss.backward()
    sums = [one.detach().abs().sum().item() for one in (loss, x.grad, weight.grad, q.grad, k.grad)]
    print(linear.matmul_backend(), sdpa._lse_op_works(), *sums)
    """
    plain = run("import torch\n" + textwrap.dedent(code)).split()
    log_to_stdout = (
        "import logging, sys; logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
    )
    *warnings, last = run(spoiled + log_to_stdout + textwrap.dedent(code)).strip().splitlines()
    taken = last.split()
    slower = [("has no usable attention", "slower")]
    if plain[0] == "onednn":
        slower.insert(0, ("has no usable oneDNN matmul", "slower"))
    for line, parts in zip(warnings, slower, strict=True):
        assert all(part in line for part in (f"torch {torch.__version__}", *parts)), line
    assert plain[1] == "True"
    assert taken[:2] == ["torch", "False"]
    expected = torch.tensor([float(word) for word in plain[2:]])
    actual = torch.tensor([float(word) for word in taken[2:]])
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
