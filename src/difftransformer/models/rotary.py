"""Rotary position embedding, RoPE (RoFormer, arXiv 2104.09864, eq. 34), in Llama's layout.

Dimension i of a head is paired with i + d/2 ("rotate half"), so weights fit ``LlamaForCausalLM`` as
they are. unilm pairs neighbors (2i, 2i + 1) instead: the same function after permuting the rows of
the query and key projections.

Shapes: B = batch, T = positions, d = head_dim; numbers of heads: Q queries, K keys, V values of
width e; R = extra columns of a fused projection.
"""

from typing import Any

import torch
from torch import Tensor

from difftransformer.errors import ConfigError
from difftransformer.models.autograd import no_double_backward, use_custom_backward

Rope = tuple[Tensor, Tensor]
"""cos and sin of the positions, [T, d] or [B, T, d]; the sin of the first half is negative."""
_ALIGNMENT = 16
"""Row lengths that are multiples of this give addresses that GPU kernels load fastest."""


class RotaryTable:
    """Rotary cos and sin of positions 0, 1, ... in float32, computed when first needed and cached.

    Compiled code computes the tables at each call, since a graph stores nothing between calls. The
    table is not a module with buffers, since construction on the meta device or a cast to bfloat16
    would damage them.
    """

    def __init__(self, head_dim: int, theta: float) -> None:
        self.head_dim = head_dim
        self.theta = theta
        self._cos = self._sin = torch.empty(0, head_dim, device="cpu")

    def at(self, positions: Tensor) -> Rope:
        """Return cos and sin, each [..., d], of integer positions [T] or [B, T].

        Raises:
            ConfigError: A position is below 0. Compiled code does not check this.
        """
        if torch.compiler.is_compiling():
            return self._cos_sin(positions)
        lowest, highest = (int(position) for position in positions.aminmax())
        if lowest < 0:
            raise ConfigError(f"the lowest position is {lowest}; positions count from 0")
        self._grow(highest + 1, positions.device)
        return self._cos[positions], self._sin[positions]

    def span(self, start: int, length: int, device: torch.device) -> Rope:
        """Return cos and sin, each [T, d], of the positions start, ..., start + length - 1."""
        if torch.compiler.is_compiling():
            return self._cos_sin(torch.arange(start, start + length, device=device))
        self._grow(start + length, device)
        return self._cos[start : start + length], self._sin[start : start + length]

    def within(self, mask: Tensor) -> Rope:
        """Return cos and sin, each [B, T, d], of positions that restart with each document.

        Args:
            mask: bool [B, 1, T, T] from `documents.document_mask`; a token's position is the number
                of earlier tokens that it may attend to.
        """
        cos, sin = self.span(0, mask.shape[-1], mask.device)
        positions = mask[:, 0].sum(dim=-1) - 1
        return cos[positions], sin[positions]

    @torch.inference_mode(False)  # a table made in inference mode must also serve training
    def _grow(self, length: int, device: torch.device) -> None:
        if length <= self._cos.shape[0] and self._cos.device == device:
            return
        rows = max(256, 1 << (length - 1).bit_length())
        self._cos, self._sin = self._cos_sin(torch.arange(rows, device=device))

    def _cos_sin(self, positions: Tensor) -> Rope:
        half = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=positions.device)
        frequencies = 1.0 / self.theta ** (half / self.head_dim)
        angles = positions.float()[..., None] * frequencies
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def apply_rope(x: Tensor, rope: Rope) -> Tensor:
    """Return heads [B, N, T, d] rotated by the angles of their positions."""
    cos, sin = (_unsqueeze_heads(table).to(x.dtype) for table in rope)
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin


def split_heads(
    projected: Tensor, rope: Rope, heads: tuple[int, int, int], value_dim: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Split a fused projection into heads and apply RoPE to queries and keys.

    Args:
        projected: [B, T, Q d + K d + V e + R], queries first.
        rope: Rotary cos and sin of the T positions.
        heads: Numbers of query, key and value heads, (Q, K, V).
        value_dim: Width of a value head, e.

    Returns:
        Queries [B, Q, T, d], keys [B, K, T, d], values [B, V, T, e], extra columns [B, T, R].
    """
    if use_custom_backward(projected):
        q, k, v, extra = _SplitHeads.apply(  # type: ignore[no-untyped-call]
            projected, *rope, heads, value_dim
        )
        return q, k, v, extra
    qk, v, extra = _split(projected, rope, heads, value_dim)
    q, k = apply_rope(qk, rope).tensor_split(heads[:1], dim=1)
    if projected.shape[-1] % _ALIGNMENT:  # values are strided by the rows of the whole projection
        v = v.contiguous()
    return q, k, v, extra


class _SplitHeads(torch.autograd.Function):
    """Backward rotates by the negative angles and writes all gradients into one tensor."""

    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        cos: Tensor,
        sin: Tensor,
        heads: tuple[int, int, int],
        value_dim: int,
    ) -> tuple[Tensor, ...]:
        cos, sin = (_unsqueeze_heads(table).to(projected.dtype) for table in (cos, sin))
        ctx.save_for_backward(cos, sin)
        ctx.heads, ctx.value_dim, ctx.width = heads, value_dim, projected.shape[-1]
        qk, v, extra = _split(projected, (cos, sin), heads, value_dim)
        qk = _apply_rope_out(qk, cos, sin, qk.new_empty(qk.shape))
        return *qk.tensor_split(heads[:1], dim=1), v.contiguous(), extra.contiguous()

    @staticmethod
    @no_double_backward
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        B, _, T, _ = grads[0].shape
        out = grads[0].new_empty(B, T, ctx.width)
        qk, v, extra = _split(out, (cos, sin), ctx.heads, ctx.value_dim)
        for grad, part in zip(grads[:2], qk.tensor_split(ctx.heads[:1], dim=1), strict=True):
            _apply_rope_out(grad, cos, -sin, part)
        v.copy_(grads[2])
        extra.copy_(grads[3])
        return out, None, None, None, None


def _apply_rope_out(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> Tensor:
    """Write `apply_rope` into ``out``, without a copy of ``x`` with swapped halves."""
    half = x.shape[-1] // 2
    torch.mul(x, cos, out=out)
    out[..., :half].addcmul_(x[..., half:], sin[..., :half])
    out[..., half:].addcmul_(x[..., :half], sin[..., half:])
    return out


def _split(
    projected: Tensor, rope: Rope, heads: tuple[int, int, int], value_dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return views: queries and keys [B, Q + K, T, d], values [B, V, T, e], extra columns."""
    Q, K, V = heads
    end = (Q + K) * rope[0].shape[-1]
    qk, v, extra = projected.tensor_split((end, end + V * value_dim), dim=-1)
    qk, v = (
        x.view(*x.shape[:2], num_heads, -1).transpose(1, 2)
        for x, num_heads in ((qk, Q + K), (v, V))
    )
    return qk, v, extra


def _unsqueeze_heads(table: Tensor) -> Tensor:
    """Reshape [T, d] or [B, T, d] to broadcast against heads [B, N, T, d]."""
    return table if table.ndim == 2 else table.unsqueeze(1)
