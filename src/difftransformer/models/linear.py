"""Linear layers without initialization, and matrix multiplication by oneDNN on the CPU.

Weights come from the model's initializer or a checkpoint. torch's own initialization would be
thrown away, is slow for large models, advances the global random state, and imports the compiler
on the meta device (seconds).

torch multiplies float32 matrices with MKL, which does not use the wide vector units of processors
other than Intel's: on an AMD EPYC with AVX-512, one thread, MKL does 90 to 115 GFLOP/s at the
shapes of a small decoder and oneDNN, which torch ships too, 170 to 250; `matmul_backend` has the
rule. torch has no public function for oneDNN, so this module alone calls the operation that its
compiler uses. With a torch that lacks or redefines it, torch's own matmul is used.

Shapes: N = rows, I = in_features, O = out_features.
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
"""Environment variable that overrides `matmul_backend`: ``onednn`` or ``torch``."""
MATMUL_BACKENDS = ("onednn", "torch")
MIN_ROWS = 16
"""Minimum number of rows for oneDNN; with fewer, its setup costs more than the product."""


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Return x W', differentiable, for x [..., I] and W [O, I]: [..., O]."""
    if not (use_custom_backward(x) and _use_onednn(x, weight)):
        return F.linear(x, weight)
    if not torch.is_grad_enabled():
        return linear_no_grad(x, weight)
    out: Tensor = _Linear.apply(x, weight)  # type: ignore[no-untyped-call]
    return out


def linear_no_grad(x: Tensor, weight: Tensor) -> Tensor:
    """Return x W', [..., O], without gradients, for x [..., I] and W [O, I] of any strides."""
    return _onednn(x, weight) if _use_onednn(x, weight) else F.linear(x, weight)


def weight_grad(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient g' x, [O, I], of a weight, for g [..., O] and x [..., I] of any strides.

    oneDNN copies the first of two transposed operands, so the narrower one comes first.
    """
    columns, rows = grad.flatten(0, -2).T, x.flatten(0, -2).T
    if len(columns) <= len(rows) or not _use_onednn(columns, rows):
        return linear_no_grad(columns, rows)
    return linear_no_grad(rows, columns).T


def weight_grad_fp32(grad: Tensor, x: Tensor) -> Tensor:
    """Return `weight_grad` of 2-dimensional factors in float32, even if they are half precision."""
    if grad.dtype == torch.float32 and x.dtype == torch.float32:
        return weight_grad(grad, x)
    with no_autocast(grad):
        if grad.is_cuda and _mm_supports_fp32_out():
            return torch.mm(grad.T, x, out_dtype=torch.float32)
        return grad.T.float() @ x.float()


def bmm_fp32(x: Tensor, y: Tensor) -> Tensor:
    """Return the batched product of [N, A, I] and [N, I, B] in float32 or wider, [N, A, B].

    On GPUs that can return float32 sums of half-precision factors, no factor (such as a whole
    cache) is copied. torch has no gradients of that operation, so with gradients both are copied.
    """
    half = x.is_cuda and x.dtype == y.dtype and x.dtype in (torch.bfloat16, torch.float16)
    needs_grad = torch.is_grad_enabled() and (x.requires_grad or y.requires_grad)
    with no_autocast(x):
        if half and not needs_grad and _bmm_supports_fp32_out():
            return torch.bmm(x, y, out_dtype=torch.float32)
        return at_least_fp32(x) @ at_least_fp32(y)


def _mm_supports_fp32_out() -> bool:
    return _supports_fp32_out(torch.mm, (16, 16))


def _bmm_supports_fp32_out() -> bool:
    return _supports_fp32_out(torch.bmm, (1, 16, 16))


# What `torch.compiler.assume_constant_result` does, without importing the compiler (seconds).
_mm_supports_fp32_out._dynamo_marked_constant = True  # type: ignore[attr-defined]
_bmm_supports_fp32_out._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _supports_fp32_out(multiply: Callable[..., Tensor], shape: tuple[int, ...]) -> bool:
    """Return whether the GPU multiplies half-precision matrices into a float32 output."""
    ones = torch.ones(shape, dtype=torch.bfloat16, device="cuda")
    try:
        out = multiply(ones, ones, out_dtype=torch.float32)
    except (RuntimeError, TypeError):
        return False
    return out.dtype == torch.float32 and bool((out == 16).all())


def _onednn(x: Tensor, weight: Tensor) -> Tensor:
    x, weight = _make_contiguous(x), _make_contiguous(weight)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return out


def _make_contiguous(x: Tensor) -> Tensor:
    """Copy a slice of a wider matrix, for which oneDNN's transposed product is 100 times slower."""
    return x if x.is_contiguous() or x.mT.is_contiguous() else x.contiguous()


def _use_onednn(x: Tensor, weight: Tensor) -> bool:
    return (
        x.numel() >= MIN_ROWS * x.shape[-1]
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and matmul_backend() == "onednn"
    )


def matmul_backend() -> str:
    """Return the library that multiplies float32 matrices on the CPU: "onednn" or "torch".

    "torch" is torch's own choice, MKL on x86. oneDNN is used on processors with AVX-512: on AMD
    EPYC of family 26 a training step is 1.5 to 1.7 times as fast, on family 25 1.0 to 1.2 times.
    Without AVX-512 (family 25 with AVX2) MKL is faster. Nothing is timed, so the bits of a result
    depend only on the processor. The environment variable `MATMUL` overrides the rule.

    Raises:
        ConfigError: The environment names a backend that does not exist or cannot run here.
    """
    forced = os.environ.get(MATMUL, "").strip()
    if forced and forced not in MATMUL_BACKENDS:
        raise ConfigError(
            f"{MATMUL}: unknown backend {forced!r}{nearest(forced, MATMUL_BACKENDS)}; choose one "
            f"of {', '.join(MATMUL_BACKENDS)}"
        )
    backend = forced or ("onednn" if _has_avx512() else "torch")
    if backend == "torch" or onednn_works():
        return backend
    if forced:
        raise ConfigError(
            f"{MATMUL}: onednn cannot run, torch {torch.__version__} has no oneDNN matmul on this "
            f"processor; set it to torch, or leave it out"
        )
    return "torch"


def _has_avx512() -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


@cache
def onednn_works() -> bool:
    """Return whether torch has its private oneDNN operation and that gives correct results."""
    return run_in_thread(_check_onednn)


def _check_onednn() -> bool:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    x, weight = torch.arange(24.0).view(3, 8) - 11, torch.arange(40.0).view(5, 8) - 20
    pairs = (x, weight), (x, weight.T.contiguous().T), (x.T, (x + 1).T)  # integers: exact
    try:
        correct = all(torch.equal(_onednn(*pair), F.linear(*pair)) for pair in pairs)
    except (AttributeError, RuntimeError, TypeError):
        correct = False
    if not correct:
        logger.warning(
            f"torch {torch.__version__} has no usable oneDNN matmul: using torch's own, which is "
            "slower on some processors; pyproject.toml has a tested release"
        )
    return correct


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
    """A linear layer x W' without bias.

    The weight is uninitialized until `Transformer.init_weights` or a checkpoint sets it.

    A fused projection of several matrices gets a mapping ``out_features``: the rows of each matrix,
    from top to bottom, by the name that it would have as a module of its own.

    Attributes:
        uses: Multiplications by the matrix per token in a forward pass, to count FLOPs.
    """

    __call__: Callable[..., Tensor]
    uses: int = 1

    def __init__(self, in_features: int, out_features: int | dict[str, int]) -> None:
        self.splits = out_features if isinstance(out_features, dict) else {"": out_features}
        super().__init__(in_features, sum(self.splits.values()), bias=False)

    def named_weights(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """Yield the qualified name and the rows of each matrix in the (fused) weight.

        ``name`` is the qualified name of this module.
        """
        prefix = name.rpartition(".")[0]
        weights = torch.split(self.weight, [*self.splits.values()])
        for matrix, weight in zip(self.splits, weights, strict=True):
            yield f"{prefix}.{matrix}" if matrix else name, weight

    def forward(self, x: Tensor) -> Tensor:
        """Return x W', [..., out_features], for x [..., in_features]."""
        return linear(x, self.weight)

    def reset_parameters(self) -> None:
        """Leave the weight uninitialized, overriding the initialization of `torch.nn.Linear`."""


class Embedding(nn.Embedding):
    """A table with one vector per token id.

    The weight is uninitialized until `Transformer.init_weights` or a checkpoint sets it.
    """

    def reset_parameters(self) -> None:
        """Leave the weight uninitialized, overriding the initialization of `torch.nn.Embedding`."""
