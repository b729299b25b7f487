"""Launch of the kernels: allocation, strides and grids. Imports Triton.

Shapes are those of `models.kernels.Kernel`; M is the number of maps per head, 1 or 2.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
from torch import Tensor

from difftransformer.errors import WrongCodeError
from difftransformer.models.kernels.fused import backward, backward_keys, backward_queries, forward
from difftransformer.models.kernels.fused.hazards import overwritten
from difftransformer.models.kernels.fused.pieces import LOG2_E
from difftransformer.models.kernels.fused.tiles import BACKWARD, Kernel, Tile, kernel_for, tile_for

POINTERS = frozenset(
    [
        "q",
        "k",
        "v",
        "lam",
        "mask",
        "out",
        "second",
        "lse",
        "lse_grad",
        "grad",
        "statistics",
        "q_grad",
        "k_grad",
        "v_grad",
    ]
)
STATISTICS_ROWS = 32
"""Rows per program of `row_statistics`, which has no matrix multiplication."""


def specialized(
    kernel: Kernel, tile: Tile, *, head_dim: int = 0, value_dim: int = 0
) -> tuple[Any, dict[str, Any]]:
    """Return a kernel's Triton function and the values of its compile-time constants.

    Widths default to the kernel's block sizes.
    """
    constants: dict[str, Any] = {
        "PAIR": kernel.maps == 2,
        "MASKED": kernel.masked,
        "HEAD_DIM": head_dim or kernel.d,
        "VALUE_DIM": value_dim or kernel.e,
        "D": kernel.d,
        "E": kernel.e,
        "ROWS": tile.rows,
        "KEYS": tile.keys,
    }
    if kernel.name == "forward":
        pair = kernel.maps == 2 and not kernel.split_maps
        return forward.forward, constants | {"PAIR": pair, "APART": kernel.split_maps, "KEEP": pair}
    constants["AHEAD"] = tile.ahead
    if kernel.name == "queries":
        return backward_queries.queries, constants
    flags = {
        # So many that there is at least one number per thread, see `pieces.load_pairs`.
        "COPIES": max(1, 16 * tile.warps // tile.rows),
        "ATOMIC": kernel.name == "keys_atomic",
        "OF_KEYS": kernel.name != "of_values",
        "OF_VALUES": kernel.name != "of_keys",
    }
    return backward_keys.keys, constants | flags


class Call:
    """One attention call: its sizes, and the arguments that its kernels share."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, lam: Tensor | None, mask: Tensor | None, scale: float
    ) -> None:
        self.q, self.k, self.v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        self.lam = None if lam is None else lam.float()
        self.mask = None if mask is None else mask.expand(len(q), -1, -1, -1).view(torch.uint8)
        self.maps = 1 if lam is None else 2
        self.heads = (len(q), q.shape[1] // self.maps, v.shape[1])
        self.lengths = (q.shape[2], k.shape[2])
        self.head_dim, self.value_dim = q.shape[-1], v.shape[-1]
        self.scales = (scale, scale * LOG2_E)

    def attend(self, *, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output, the output of map 2, and the log-sum-exp.

        The outputs are [B, T, H, e]; the second is empty unless ``keep``. The log-sum-exp is to
        base 2, [M, B, H, T].
        """
        (B, H, _), (T, _) = self.heads, self.lengths
        out = self.v.new_empty(B, T, H, self.value_dim)
        split_maps = self._kernel("forward").split_maps
        keep = keep and self.maps == 2
        second = torch.empty_like(out) if keep or split_maps else self.v.new_empty(0)
        lse = self.q.new_empty(self.maps, B, H, T, dtype=torch.float32)
        self._start(
            "forward",
            self._inputs(),
            (out, second, lse),
            self._strides(),
            (*self.heads, *self.lengths, self.scales[1]),
            KEEP=keep,
        )
        if split_maps and self.lam is not None:
            out = torch.addcmul(out, second, self.lam, value=-1, out=out)
        return out, second if keep else self.v.new_empty(0), lse

    def differentiate(
        self,
        grad: Tensor,
        lse_grad: Tensor | None,
        out: Tensor,
        second: Tensor,
        lse: Tensor,
        *,
        way: str,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v, contiguous, and of lam, a scalar in float32.

        Args:
            grad: Gradient of the output, [B, T, H, e].
            lse_grad: Gradient of the natural log-sum-exp, [1, B, H, T] in float32.
            out: The attention output, [B, T, H, e].
            second: The output of the second map of each head.
            lse: Log-sum-exp to base 2, [M, B, H, T].
            way: Variant of the backward pass, a key of `BACKWARD`.
        """
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        statistics = self._row_statistics(grad, lse_grad, out, second, lse)
        q_grad = self.q.new_empty(self.q.shape)
        if way == "atomic":
            q_grad = torch.zeros_like(q_grad, dtype=torch.float32)
        k_grad, v_grad = self.k.new_empty(self.k.shape), self.v.new_empty(self.v.shape)
        inputs = (*self._inputs(), grad, statistics)
        strides = (*self._strides(), *(grad.stride(i) for i in (0, 1, 2)))
        sizes = (*self.heads[1:], *self.lengths, *self.scales)
        for name in BACKWARD[way]:
            outputs = (q_grad,) if name == "queries" else (q_grad, k_grad, v_grad)
            self._start(name, inputs, outputs, strides, sizes)
        lam_grad = -statistics[..., -1].sum()
        return q_grad.to(self.q.dtype), k_grad, v_grad, lam_grad

    def _row_statistics(
        self, grad: Tensor, lse_grad: Tensor | None, out: Tensor, second: Tensor, lse: Tensor
    ) -> Tensor:
        (B, H, _), (T, _) = self.heads, self.lengths
        statistics = lse.new_empty(B, H, T, 2 * self.maps)
        with _on(self.q):
            backward.row_statistics[(-(-T // STATISTICS_ROWS) * B * H,)](
                grad,
                *(grad.stride(i) for i in (0, 1, 2)),
                out,
                second,
                lse,
                lse_grad,
                self.lam,
                statistics,
                B,
                H,
                T,
                PAIR=self.maps == 2,
                LSE_GRAD=lse_grad is not None,
                VALUE_DIM=self.value_dim,
                E=self._kernel("forward").e,
                ROWS=STATISTICS_ROWS,
            )
        return statistics

    def _start(
        self,
        name: str,
        inputs: tuple[Tensor | None, ...],
        outputs: tuple[Tensor, ...],
        strides: tuple[int, ...],
        sizes: tuple[float, ...],
        **flags: bool,
    ) -> None:
        kernel = self._kernel(name)
        tile = tile_for(kernel, self.q.device)
        function, constants = specialized(
            kernel, tile, head_dim=self.head_dim, value_dim=self.value_dim
        )
        (B, H, G), (T, S) = self.heads, self.lengths
        by_keys = name not in ("forward", "queries")
        programs = -(-S // tile.keys) * B * G if by_keys else -(-T // tile.rows) * B * H
        grid = (programs, 2 if constants.get("APART") else 1)
        with _on(self.q):
            compiled_kernel = function[grid](
                *inputs,
                *outputs,
                *strides,
                *sizes,
                **(constants | flags),
                num_warps=tile.warps,
                num_stages=tile.stages,
            )
        check_code(compiled_kernel, kernel, tile)

    def _kernel(self, name: str) -> Kernel:
        masked = self.mask is not None
        return kernel_for(name, self.maps, self.head_dim, self.value_dim, masked=masked)

    def _inputs(self) -> tuple[Tensor | None, ...]:
        return self.q, self.k, self.v, self.lam, self.mask

    def _strides(self) -> tuple[int, ...]:
        heads = [x.stride(i) for x in (self.q, self.k, self.v) for i in (0, 1, 2)]
        mask = (0, 0, 0) if self.mask is None else [self.mask.stride(i) for i in (0, 2, 3)]
        return (*heads, *mask)


_checked: set[str] = set()


def check_code(ran: Any, kernel: Kernel, tile: Tile) -> None:
    """Check the code of a compiled kernel for a fault of Triton, once after its first run.

    Interpreted kernels are not checked. Shipped tiles were checked with one version of Triton and
    some widths; the code of other versions and widths may differ.

    Raises:
        WrongCodeError: The results of the kernel may be wrong, see `hazards`.
    """
    if ran is None or ran.hash in _checked:
        return
    if overwritten(ran.asm.get("ttgir", ""), tile.stages):
        raise WrongCodeError(
            f"backend fused: Triton {triton.__version__} compiles {kernel} with tile "
            f"{tile.numbers} to code that overwrites what it is reading; use sdpa, or another "
            "Triton"
        )
    _checked.add(ran.hash)


def _on(x: Tensor) -> AbstractContextManager[Any]:
    """Return a context that makes the GPU of ``x`` the current one, where kernels are launched."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
