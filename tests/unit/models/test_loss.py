from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils._python_dispatch import TorchDispatchMode

from difftransformer.models import loss as loss_module
from difftransformer.models.loss import chunked_cross_entropy, token_losses


def sample(N: int, V: int, D: int = 12, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(N * 1000 + V)
    hidden = torch.randn(N, D, generator=generator) * scale
    weight = torch.randn(V, D, generator=generator)
    targets = torch.randint(V, (N,), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), targets


@settings(max_examples=40)
@given(
    N=st.integers(1, 150),
    V=st.integers(2, 300),
    chunk=st.integers(1, 200),
    cached=st.sampled_from([1, 2**19]),
    weighted=st.booleans(),
)
def test_chunked_cross_entropy_and_gradients_equal_torch(
    N: int, V: int, chunk: int, cached: int, weighted: bool
) -> None:
    hidden, weight, targets = sample(N, V)
    weights = torch.rand(N, generator=torch.Generator().manual_seed(1)) if weighted else None
    exact = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    losses = F.cross_entropy(exact[0] @ exact[1].T, targets, reduction="none")
    expected = losses.mean() if weights is None else losses @ weights.double()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_module, "CACHED_LOGITS", cached)
        patch.setattr(loss_module, "MIN_ROWS", 1)
        actual = chunked_cross_entropy(hidden, weight, targets, chunk, weights)
    assert actual.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
    autograd = torch.autograd.grad(3 * actual, (hidden, weight))
    for mine, theirs in zip(autograd, torch.autograd.grad(3 * expected, exact), strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_token_losses_are_those_behind_the_mean(scale: float) -> None:
    hidden, weight, targets = sample(70, 33, scale=scale)
    losses = token_losses(hidden, weight, targets, chunk=16)
    expected = F.cross_entropy(hidden @ weight.T, targets, reduction="none")
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-4)
    assert not losses.requires_grad
    mean = chunked_cross_entropy(hidden, weight, targets, 16)
    torch.testing.assert_close(mean, losses.mean())
    with torch.no_grad():
        torch.testing.assert_close(chunked_cross_entropy(hidden, weight, targets, 16), mean)


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements that one operation returned."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **kwargs or {})
        if isinstance(out, Tensor):
            self.elements = max(self.elements, out.numel())
        return out


def test_the_logits_of_all_positions_never_exist() -> None:
    hidden, weight, targets = sample(1024, 20_000, D=8)
    with LargestTensor() as largest:
        chunked_cross_entropy(hidden, weight, targets, 64).backward()
        token_losses(hidden, weight, targets, 64)
    assert largest.elements == 64 * 20_000


def test_autocast_computes_in_half_precision_and_returns_full_gradients() -> None:
    hidden, weight, targets = sample(50, 40)
    exact = chunked_cross_entropy(hidden, weight, targets, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = chunked_cross_entropy(hidden, weight, targets, 16)
    assert mixed.dtype == torch.float32
    assert mixed.item() == pytest.approx(exact.item(), rel=1e-2)
    for half, full in zip(
        torch.autograd.grad(mixed, (hidden, weight)),
        torch.autograd.grad(exact, (hidden, weight)),
        strict=True,
    ):
        assert half.dtype == torch.float32
        assert (half - full).norm() / full.norm() < 0.02


@pytest.mark.parametrize("with_gradients", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_autocast_does_not_round_the_sum_of_the_losses(
    with_gradients: bool, weighted: bool
) -> None:
    hidden, weight, targets = sample(64, 40)
    weights = torch.rand(64, generator=torch.Generator().manual_seed(1)) if weighted else None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = token_losses(hidden, weight, targets, 16)
        with torch.set_grad_enabled(with_gradients):
            actual = chunked_cross_entropy(hidden, weight, targets, 16, weights)
    assert actual.dtype == torch.float32
    expected = losses.mean() if weights is None else (losses * weights).sum()
    torch.testing.assert_close(actual.detach(), expected, rtol=1e-6, atol=0)


def test_the_compiled_loss_is_one_graph_with_the_same_gradients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graphs = CompileCounterWithBackend("aot_eager")
    fused = torch.compile(
        loss_module.fused_losses_and_grad, dynamic=True, fullgraph=True, backend=graphs
    )
    monkeypatch.setattr(loss_module, "_compiled_losses_and_grad", lambda: fused)
    hidden, weight, targets = sample(150, 40)  # the last chunk is short
    for scale in (1.0, 300.0):
        plain, compiled = (
            chunked_cross_entropy(hidden * scale, weight, targets, 64, compiled=compiled)
            for compiled in (False, True)
        )
        torch.testing.assert_close(plain, compiled)
        both = [torch.autograd.grad(loss, (hidden, weight)) for loss in (plain, compiled)]
        for mine, theirs in zip(*both, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5 * scale)
    assert graphs.frame_count == 1


def test_the_gradient_of_the_head_is_not_rounded_chunk_by_chunk() -> None:
    hidden, weight, targets = sample(512, 40)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        unchunked, chunked = (
            torch.autograd.grad(chunked_cross_entropy(hidden, weight, targets, size), weight)[0]
            for size in (512, 16)
        )
    torch.testing.assert_close(unchunked, chunked, rtol=1e-5, atol=1e-7)
