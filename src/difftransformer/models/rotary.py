"""Rotary positions (RoFormer, equation 34) in the rotate-half layout of Llama.

Dimension i of a head is paired with i + d/2, so that weights go to ``LlamaForCausalLM`` as they
are. The authors' code pairs neighbours (2i, 2i + 1) instead: the same function after permuting the
rows of the query and key projections.

Shapes: B = batch, T = positions, N = heads of any kind, d = head_dim.
"""

import torch
from torch import Tensor


class RotaryTable:
    """cos and sin for positions 0, 1, ... in float32, made when first needed and kept.

    Not a module with buffers on purpose: tables that are no state survive neither
    ``torch.device("meta")`` construction nor a cast to bfloat16 unharmed.
    """

    def __init__(self, head_dim: int, theta: float) -> None:
        self.head_dim = head_dim
        self.theta = theta
        self._cos = self._sin = torch.empty(0, head_dim)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin [B, T, d] of integer positions [B, T]."""
        length = int(positions.max()) + 1
        self._grow(length, positions.device)
        return self._cos[positions], self._sin[positions]

    def span(self, start: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """cos and sin [T, d] of the positions start, ..., start + length - 1."""
        self._grow(start + length, device)
        return self._cos[start : start + length], self._sin[start : start + length]

    def _grow(self, length: int, device: torch.device) -> None:
        if length <= self._cos.shape[0] and self._cos.device == device:
            return
        rows = max(256, 1 << (length - 1).bit_length())
        half = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=device)
        frequencies = 1.0 / self.theta ** (half / self.head_dim)
        angles = torch.arange(rows, dtype=torch.float32, device=device)[:, None] * frequencies
        self._cos = torch.cat((angles.cos(), angles.cos()), dim=-1)
        self._sin = torch.cat((angles.sin(), angles.sin()), dim=-1)


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Turn heads [B, T, N, d] by their positions' angles; cos, sin: [T, d] or [B, T, d]."""
    cos, sin = (table.unsqueeze(-2).to(x.dtype) for table in rope)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
