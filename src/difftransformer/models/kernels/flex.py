"""FlexAttention, for the log-sum-exp on a GPU: it is differentiable there.

Shapes as in `models.kernels.Kernel`.
"""

from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

BLOCK = 128
"""Queries and keys per block that is computed or skipped; FlexAttention's default."""
_TABLES = [
    f"{full}{side}_{what}"
    for side in ("kv", "q")
    for full in ("", "full_")
    for what in ("num_blocks", "indices")
]
"""Tensors of a ``BlockMask``: the number of blocks in each row of blocks, and their indices."""


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute softmax attention and its log-sum-exp (`Kernel.attention_with_lse`).

    FlexAttention computes both; on the CPU plain PyTorch does, without gradients.
    """
    from torch.nn.attention.flex_attention import AuxRequest  # imports the compiler: seconds

    def apply_mask(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        assert mask is not None
        visible = mask[b if mask.shape[0] > 1 else 0, 0, i, j]
        return torch.where(visible, score, -float("inf"))

    T, S = q.shape[-2], k.shape[-2]
    options: dict[str, Any] = {"scale": scale, "enable_gqa": q.shape[1] != k.shape[1]}
    if mask is not None:
        options["score_mod"] = apply_mask
    elif T > 1:
        options["block_mask"] = causal_blocks(T, S, q.device)
    out, aux = _operation(q.is_cuda)(q, k, v, return_aux=AuxRequest(lse=True), **options)
    return out.transpose(1, 2), aux.lse.transpose(1, 2)


def causal_blocks(T: int, S: int, device: torch.device) -> Any:
    """Return FlexAttention's causal ``BlockMask``, with which it skips fully masked blocks."""
    from torch.fx.experimental.symbolic_shapes import has_static_value
    from torch.nn.attention.flex_attention import BlockMask

    past = S - T

    def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= i + past

    fixed = has_static_value(T) and has_static_value(S)
    tables = (_constant_tables if fixed else _causal_tables)(T, S, device)
    named = dict(zip(_TABLES, tables, strict=True))
    return BlockMask((T, S), BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=causal, **named)


def _constant_tables(T: int, S: int, device: torch.device) -> tuple[Any, ...]:
    """Return `_causal_tables` as constants of a compiled graph, which does not trace them."""
    return _causal_tables(T, S, device)


# What `torch.compiler.assume_constant_result` does, without importing the compiler (seconds).
_constant_tables._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # cached, so training must be able to use them
def _causal_tables(T: int, S: int, device: torch.device) -> tuple[Any, ...]:
    """Return counts and indices of the blocks to attend to, without materializing a mask."""
    from torch.nn.attention.flex_attention import BlockMask

    past = S - T
    starts = torch.arange(0, T, BLOCK, device=device)
    stops = starts + BLOCK
    visible = (stops.clamp(max=T) - 1 + past) // BLOCK + 1  # blocks of a row's last query
    full = torch.where(stops <= T, (starts + past + 1) // BLOCK, 0)  # wholly visible to its first
    columns = torch.arange(-(-S // BLOCK), device=device)
    partial_indices = (full[:, None] + columns) % len(columns)
    full_indices = columns.expand(len(starts), -1)
    num_partial, partial, num_full, full = (
        table.to(torch.int32)[None, None].contiguous()
        for table in (visible - full, partial_indices, full, full_indices)
    )
    blocks = BlockMask.from_kv_blocks(
        num_partial, partial, num_full, full, BLOCK_SIZE=BLOCK, seq_lengths=(T, S)
    )
    return tuple(getattr(blocks, name) for name in _TABLES)


@cache
def _operation(compiled: bool) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention) if compiled else flex_attention
