"""Matrices without initial values; products with them, on the CPU by oneDNN where torch has it.

The model draws all values, or a checkpoint brings them: torch's own initialisation would be thrown
away, takes long for large models, advances the global random state, and on the meta device imports
the compiler (seconds).

torch multiplies float32 matrices with MKL, which leaves the wide vector units of processors that
are not Intel's unused: on an AMD EPYC with AVX-512, one thread, MKL does 90 GFLOP/s at the shapes
of a small decoder and oneDNN, which torch brings too, 140 to 220. torch has no public function for
it, so this is the one place that names the operation its compiler uses.

Shapes: N = rows, I = inputs, O = outputs.
"""

import platform
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from difftransformer.models.gradients import by_hand, first_derivative

FEWEST_ROWS = 16
"""Below so many rows MKL is the faster one: the preparation of a call costs more than the call."""
_X86 = platform.machine().lower() in ("x86_64", "amd64")
_ONEDNN = _X86 and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply with gradients, x W': [..., I] and [O, I] -> [..., O]."""
    if not (_by_onednn(x, weight) and by_hand(x)):
        return F.linear(x, weight)
    if not torch.is_grad_enabled():
        return product(x, weight)
    out: Tensor = _Linear.apply(x, weight)  # type: ignore[no-untyped-call]
    return out


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply without gradients, for any strides, x W': [..., I] and [O, I] -> [..., O]."""
    if not _by_onednn(x, weight):
        return F.linear(x, weight)
    x, weight = _gapless(x), _gapless(weight)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return out


def _gapless(x: Tensor) -> Tensor:
    """Copy a part of a wider matrix: transposed, it sends oneDNN to a product 100 times as slow."""
    return x if x.is_contiguous() or x.mT.is_contiguous() else x.contiguous()


def _by_onednn(x: Tensor, weight: Tensor) -> bool:
    return (
        _ONEDNN
        and x.numel() >= FEWEST_ROWS * x.shape[-1]
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
    )


class _Linear(torch.autograd.Function):
    """dx = g W and dW = g' x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight)

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight = ctx.needs_input_grad
        x_grad = product(grad, weight.T) if wants_x else None
        columns, rows = grad.flatten(0, -2).T, x.flatten(0, -2).T
        return x_grad, product(columns, rows) if wants_weight else None


class Linear(nn.Linear):
    """x W', without bias; undefined until `Transformer.init_weights` or a checkpoint sets it.

    ``outputs`` of several matrices that are multiplied as one are a mapping: the rows of each, from
    top to bottom, by the name that it would have beside this one.
    """

    def __init__(self, inputs: int, outputs: int | dict[str, int]) -> None:
        self.parts = outputs if isinstance(outputs, dict) else {"": outputs}
        super().__init__(inputs, sum(self.parts.values()), bias=False)

    def matrices(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """Qualified names and rows of the matrices in this one, which is called ``name``."""
        beside = name.rpartition(".")[0]
        sizes = [*self.parts.values()]
        for part, rows in zip(self.parts, torch.split(self.weight, sizes), strict=True):
            yield f"{beside}.{part}" if part else name, rows

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return linear(x, self.weight)

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


class Embedding(nn.Embedding):
    """One row for each id; undefined until `Transformer.init_weights` or a checkpoint sets it."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""
