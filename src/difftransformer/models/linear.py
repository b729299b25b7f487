"""Matrices without initial values; products with them, on the CPU by oneDNN where torch has it.

The model draws all values, or a checkpoint brings them: torch's own initialization would be thrown
away, takes long for large models, advances the global random state, and on the meta device imports
the compiler (seconds).

torch multiplies float32 matrices with MKL, which leaves the wide vector units of processors that
are not Intel's unused: on an AMD EPYC with AVX-512, one thread, MKL does 90 to 115 GFLOP/s at the
shapes of a small decoder and oneDNN, which torch brings too, 170 to 250; `matmul_backend` is the
rule. torch has no public function for oneDNN, so this is the one place that names the operation its
compiler uses; a torch without it, or with another meaning of it, takes its own product.

Shapes: N = rows, I = inputs, O = outputs.
"""

import logging
import os
import platform
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from difftransformer.errors import ConfigError, nearest
from difftransformer.models.autograd import (
    at_least_fp32,
    no_autocast,
    no_double_backward,
    run_in_thread,
    use_custom_backward,
)

logger = logging.getLogger(__name__)
MATMUL = "DIFFTRANSFORMER_MATMUL"
"""Environment: ``onednn`` or ``torch``, whatever `matmul_backend` would take."""
MATMUL_BACKENDS = ("onednn", "torch")
MIN_ROWS = 16
"""Below so many rows MKL is the faster one: the preparation of a call costs more than the call."""


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply with gradients, x W': [..., I] and [O, I] -> [..., O]."""
    if not (use_custom_backward(x) and _by_onednn(x, weight)):
        return F.linear(x, weight)
    if not torch.is_grad_enabled():
        return linear_no_grad(x, weight)
    out: Tensor = _Linear.apply(x, weight)  # type: ignore[no-untyped-call]
    return out


def linear_no_grad(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply without gradients, for any strides, x W': [..., I] and [O, I] -> [..., O]."""
    return _onednn(x, weight) if _by_onednn(x, weight) else F.linear(x, weight)


def weight_grad(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of a weight, g' x: [..., O] and [..., I] -> [O, I], of any strides.

    oneDNN copies the first of two operands that it gets transposed, so that is the narrower one.
    """
    columns, rows = grad.flatten(0, -2).T, x.flatten(0, -2).T
    if len(columns) <= len(rows) or not _by_onednn(columns, rows):
        return linear_no_grad(columns, rows)
    return linear_no_grad(rows, columns).T


def weight_grad_fp32(grad: Tensor, x: Tensor) -> Tensor:
    """`outer` of two dimensions in float32, of factors in half precision, too."""
    if grad.dtype == torch.float32 and x.dtype == torch.float32:
        return weight_grad(grad, x)
    with no_autocast(grad):
        if grad.is_cuda and _mm_widens():
            return torch.mm(grad.T, x, out_dtype=torch.float32)
        return grad.T.float() @ x.float()


def bmm_fp32(x: Tensor, y: Tensor) -> Tensor:
    """Multiply matrices of a batch, [N, A, I] and [N, I, B] -> [N, A, B], in float32 at least.

    Where a card can leave the sums of half precision as they are, no factor is copied: one may be a
    whole cache. With gradients, which torch does not have of that, both are.
    """
    half = x.is_cuda and x.dtype == y.dtype and x.dtype in (torch.bfloat16, torch.float16)
    learns = torch.is_grad_enabled() and (x.requires_grad or y.requires_grad)
    with no_autocast(x):
        if half and not learns and _bmm_widens():
            return torch.bmm(x, y, out_dtype=torch.float32)
        return at_least_fp32(x) @ at_least_fp32(y)


def _mm_widens() -> bool:
    return _widens(torch.mm, (16, 16))


def _bmm_widens() -> bool:
    return _widens(torch.bmm, (1, 16, 16))


# As `torch.compiler.assume_constant_result` has it, which imports the compiler: seconds.
_mm_widens._dynamo_marked_constant = True  # type: ignore[attr-defined]
_bmm_widens._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _widens(multiply: Callable[..., Tensor], shape: tuple[int, ...]) -> bool:
    """Whether the card's product of half precision can leave its sums as they are, in float32."""
    one = torch.ones(shape, dtype=torch.bfloat16, device="cuda")
    try:
        found = multiply(one, one, out_dtype=torch.float32)
    except (RuntimeError, TypeError):
        return False
    return found.dtype == torch.float32 and bool((found == 16).all())


def _onednn(x: Tensor, weight: Tensor) -> Tensor:
    x, weight = _gapless(x), _gapless(weight)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return out


def _gapless(x: Tensor) -> Tensor:
    """Copy a part of a wider matrix: transposed, it sends oneDNN to a product 100 times as slow."""
    return x if x.is_contiguous() or x.mT.is_contiguous() else x.contiguous()


def _by_onednn(x: Tensor, weight: Tensor) -> bool:
    return (
        x.numel() >= MIN_ROWS * x.shape[-1]
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and matmul_backend() == "onednn"
    )


def matmul_backend() -> str:
    """Return which library multiplies float32 matrices on the CPU: "onednn" or "torch".

    "torch" is what torch takes by itself, MKL on x86. oneDNN is taken on processors with AVX-512:
    on AMD EPYC of family 26 it makes a training step 1.5 to 1.7 times as fast, on family 25 it is
    1.0 to 1.2 times as fast. On those without AVX-512 (family 25 with AVX2) MKL is the faster one.
    Nothing is timed, so that the bits of a result depend on the processor alone. The environment
    variable `MATMUL` overrides the rule.

    Raises:
        ConfigError: The environment asks for a backend that does not exist or cannot run here.
    """
    forced = os.environ.get(MATMUL, "").strip()
    if forced and forced not in MATMUL_BACKENDS:
        raise ConfigError(
            f"{MATMUL}: unknown backend {forced!r}{nearest(forced, MATMUL_BACKENDS)}; choose one "
            f"of {', '.join(MATMUL_BACKENDS)}"
        )
    wanted = forced or ("onednn" if _has_avx512() else "torch")
    if wanted == "torch" or onednn_works():
        return wanted
    if forced:
        raise ConfigError(
            f"{MATMUL}: onednn cannot run, torch {torch.__version__} has no such product on this "
            f"processor; set it to torch, or leave it out"
        )
    return "torch"


def _has_avx512() -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


@cache
def onednn_works() -> bool:
    """Whether torch has the operation, and it is the product: a private one may change its mind."""
    return run_in_thread(_onednn_is_right)


def _onednn_is_right() -> bool:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    x, weight = torch.arange(24.0).view(3, 8) - 11, torch.arange(40.0).view(5, 8) - 20
    pairs = (x, weight), (x, weight.T.contiguous().T), (x.T, (x + 1).T)  # whole numbers: exact
    try:
        sound = all(torch.equal(_onednn(*pair), F.linear(*pair)) for pair in pairs)
    except (AttributeError, RuntimeError, TypeError):
        sound = False
    if not sound:
        logger.warning(
            f"torch {torch.__version__} has no product by oneDNN that we know: products are "
            "torch's own, which some processors compute more slowly; a release that was tried is "
            "in pyproject.toml"
        )
    return sound


class _Linear(torch.autograd.Function):
    """dx = g W and dW = g' x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return linear_no_grad(x, weight)

    @staticmethod
    @no_double_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight = ctx.needs_input_grad
        x_grad = linear_no_grad(grad, weight.T) if wants_x else None
        return x_grad, weight_grad(grad, x).contiguous() if wants_weight else None


class Linear(nn.Linear):
    """x W', without bias; undefined until `Transformer.init_weights` or a checkpoint sets it.

    ``outputs`` of several matrices that are multiplied as one are a mapping: the rows of each, from
    top to bottom, by the name that it would have beside this one.

    Attributes:
        uses: Multiplications by the matrix per token in a forward pass, to count FLOPs.
    """

    __call__: Callable[..., Tensor]
    uses: int = 1

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
