"""Second derivatives of every Function with a hand-written gradient: right, or refused."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import difftransformer
from difftransformer.models.kernels import blocked, eager, sdpa
from difftransformer.models.linear import linear
from difftransformer.models.loss import chunked_cross_entropy
from difftransformer.models.normalization import RMSNorm
from difftransformer.models.rotary import RotaryTable, apply_rope, split_heads
from difftransformer.models.transformer import swiglu

Formula = Callable[[Tensor], Tensor]
SOURCE = Path(difftransformer.__file__).parent
X = torch.randn(2, 4, 16, 8, generator=torch.Generator().manual_seed(0))
W = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
TARGETS = torch.arange(128) % 8
NORM = RMSNorm(8, eps=1e-5).requires_grad_(False)
with torch.no_grad():
    NORM.weight.uniform_(0.5, 2.0)
ROPE = RotaryTable(8, 100.0).span(0, 16, torch.device("cpu"))
LAM = torch.tensor(0.3)


def _heads(x: Tensor) -> Tensor:
    q, k, v, _ = split_heads(x.transpose(1, 2).flatten(2), ROPE, (2, 1, 1), 8)
    return torch.cat((q, k, v), dim=1)


def _plain_heads(x: Tensor) -> Tensor:
    return torch.cat((apply_rope(x[:, :3], ROPE), x[:, 3:]), dim=1)


def _with_lse(kernel: Callable[..., tuple[Tensor, Tensor]]) -> Formula:
    def sinks(x: Tensor) -> Tensor:
        out, lse = kernel(x, x, x, scale=0.5, mask=None)
        return out * torch.sigmoid(lse).unsqueeze(-1)

    return sinks


def _difference(kernel: Callable[..., Tensor]) -> Formula:
    return lambda x: kernel(x, x, x[:, :2], LAM, scale=0.5, mask=None)


CASES: dict[str, list[tuple[Formula, Formula]]] = {
    "_Linear": [(lambda x: linear(x, W), lambda x: x @ W.T)],
    "_RMSNorm": [(NORM, lambda x: F.rms_norm(x, (8,), NORM.weight, 1e-5))],
    "_SwiGLU": [(swiglu, lambda x: F.silu(x[..., :4]) * x[..., 4:])],
    "_SplitHeads": [(_heads, _plain_heads)],
    "_AttentionWithLse": [
        (_with_lse(sdpa.attention_with_lse), _with_lse(eager.attention_with_lse))
    ],
    "_Blocked": [
        (_with_lse(blocked.attention_with_lse), _with_lse(eager.attention_with_lse)),
        (_difference(blocked.differential_attention), _difference(eager.differential_attention)),
    ],
    "_ChunkedCrossEntropy": [
        (
            lambda x: chunked_cross_entropy(x.flatten(0, 2), W, TARGETS, 64),
            lambda x: F.cross_entropy(x.flatten(0, 2) @ W.T, TARGETS),
        )
    ],
}


def test_every_autograd_function_has_a_case() -> None:
    actual = {
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith("Function") for base in node.bases)
    }
    assert actual == set(CASES)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(
    ("name", "index"), [(name, i) for name, cases in CASES.items() for i in range(len(cases))]
)
def test_double_backward_is_correct_or_raises(
    name: str, index: int, before: bool, beside: bool
) -> None:
    """Alone, beside a path that has one, and with an incoming gradient that has one or has not."""

    def second(formula: Formula) -> Tensor:
        x = X.clone().requires_grad_()
        out = formula(x * 1.0)
        total = (out**2 if before else out).sum() + (x**3).sum() * beside
        (first,) = torch.autograd.grad(total, x, create_graph=True)
        (actual,) = torch.autograd.grad((first**2).sum(), x, allow_unused=True)
        return torch.zeros_like(x) if actual is None else actual

    use_custom_backward, plain = CASES[name][index]
    try:
        actual = second(use_custom_backward)
    except NotImplementedError as refusal:
        assert f"{name}.backward" in str(refusal) and "second derivative" in str(refusal)
    else:
        torch.testing.assert_close(actual, second(plain))
