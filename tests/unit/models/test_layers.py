"""The parts of a layer whose gradients are written by hand, and the law behind rotary positions."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from difftransformer.models.autograd import disable_custom_backward
from difftransformer.models.normalization import RMSNorm
from difftransformer.models.rotary import RotaryTable, apply_rope, split_heads
from difftransformer.models.transformer import swiglu

CPU = torch.device("cpu")


def test_rms_norm_and_its_gradients() -> None:
    norm = RMSNorm(6, eps=1e-3).double()
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2.0)
    x = torch.randn(3, 4, 6, dtype=torch.double, requires_grad=True)
    expected = F.rms_norm(x, (6,), norm.weight * 0.3, eps=1e-3)
    torch.testing.assert_close(norm(x, 0.3), expected, rtol=1e-6, atol=1e-6)
    probe = torch.randn_like(expected)
    mine = torch.autograd.grad(norm(x, 0.3), (x, norm.weight), probe)
    theirs = torch.autograd.grad(expected, (x, norm.weight), probe)
    for actual, wanted in zip(mine, theirs, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-5)


def test_rms_norm_of_zeros_is_zero_with_finite_gradients() -> None:
    norm, x = RMSNorm(4, eps=1e-5), torch.zeros(2, 4, requires_grad=True)
    norm(x).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_swiglu_and_its_gradients() -> None:
    x = torch.randn(5, 14, dtype=torch.double, requires_grad=True)
    gate, up = x.chunk(2, dim=-1)
    torch.testing.assert_close(swiglu(x), gate * torch.sigmoid(gate) * up)
    assert torch.autograd.gradcheck(swiglu, x)


@pytest.mark.parametrize("further", [0, 3])
@pytest.mark.parametrize("by_position", [True, False])
def test_split_heads_and_its_gradients(by_position: bool, further: int) -> None:
    columns = [4 * 6, 2 * 6, 2 * 9, further]
    x = torch.randn(2, 5, sum(columns), dtype=torch.double, requires_grad=True)
    table = RotaryTable(6, 100.0)
    positions = torch.tensor([[0, 1, 2, 3, 4], [0, 0, 7, 8, 9]])
    cos, sin = table.at(positions) if by_position else table.span(3, 5, CPU)
    rope = cos.double(), sin.double()
    q, k, v, rest = split_heads(x, rope, (4, 2, 2), 9)
    *parts, last = x.split(columns, dim=-1)
    plain = [
        p.unflatten(-1, (n, -1)).transpose(1, 2) for p, n in zip(parts, (4, 2, 2), strict=True)
    ]
    torch.testing.assert_close(q, apply_rope(plain[0], rope))
    torch.testing.assert_close(k, apply_rope(plain[1], rope))
    torch.testing.assert_close(v, plain[2])
    assert torch.equal(rest, last)
    assert torch.autograd.gradcheck(lambda x: split_heads(x, rope, (4, 2, 2), 9), x)


@settings(max_examples=30)
@given(
    first=st.integers(0, 500),
    second=st.integers(0, 500),
    shift=st.integers(0, 300),
    half=st.integers(1, 8),
)
def test_scores_depend_on_the_distance_alone(
    first: int, second: int, shift: int, half: int
) -> None:
    table = RotaryTable(2 * half, 50.0)
    generator = torch.Generator().manual_seed(half)
    q, k = torch.randn(2, 1, 1, 1, 2 * half, generator=generator)

    def score(at_q: int, at_k: int) -> float:
        turned = [apply_rope(x, table.span(p, 1, CPU)) for x, p in ((q, at_q), (k, at_k))]
        return (turned[0] * turned[1]).sum().item()

    assert score(first, second) == pytest.approx(score(first + shift, second + shift), abs=2e-3)


def test_a_table_does_not_depend_on_how_it_grew() -> None:
    grown, direct = RotaryTable(8, 100.0), RotaryTable(8, 100.0)
    for length in (3, 300, 1000):
        grown.span(0, length, CPU)
    for mine, other in zip(grown.span(10, 700, CPU), direct.span(10, 700, CPU), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("further", [0, 3])
def test_values_are_aligned_for_gpu_loads(further: int) -> None:
    table, x = RotaryTable(8, 100.0), torch.randn(2, 5, 64 + further)
    with disable_custom_backward():
        _, _, v, _ = split_heads(x, table.span(0, 5, CPU), (4, 2, 1), 16)
    assert v.stride(-2) == (16 if further else 64)


def test_custom_backward_agrees_with_autograd() -> None:
    """They run on GPUs and under compilation, where this suite may not."""
    norm, table = RMSNorm(12, 1e-5), RotaryTable(6, 100.0)
    x = torch.randn(2, 5, 50)

    def everything() -> list[Tensor]:
        parts = split_heads(x, table.span(0, 5, CPU), (4, 2, 1), 12)
        return [norm(x[..., :12], 0.5), swiglu(x), *parts]

    custom = everything()
    with disable_custom_backward():
        plainly = everything()
    assert not all(mine.equal(plain) for mine, plain in zip(custom, plainly, strict=True))
    for mine, plain in zip(custom, plainly, strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-5, atol=1e-6)
