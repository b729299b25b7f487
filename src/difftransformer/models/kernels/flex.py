"""FlexAttention, for what needs the log-sum-exp on a GPU: it has gradients through it.

Shapes as in `models.kernels.Kernel`.
"""

from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

BLOCK = 128
"""Queries, and keys, of a block that is computed or left out; FlexAttention's own choice."""
_TABLES = [
    f"{full}{side}_{what}"
    for side in ("kv", "q")
    for full in ("", "full_")
    for what in ("num_blocks", "indices")
]
"""Of a ``BlockMask``: how many blocks a row of them has, and which."""


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """See `Kernel.attention_with_lse`; on the CPU plain PyTorch, without gradients."""
    from torch.nn.attention.flex_attention import AuxRequest  # imports the compiler: seconds

    def allowed(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        assert mask is not None
        seen = mask[b if mask.shape[0] > 1 else 0, 0, i, j]
        return torch.where(seen, score, -float("inf"))

    queries, keys = q.shape[-2], k.shape[-2]
    options: dict[str, Any] = {"scale": scale, "enable_gqa": q.shape[1] != k.shape[1]}
    if mask is not None:
        options["score_mod"] = allowed
    elif queries > 1:
        options["block_mask"] = causal_blocks(queries, keys, q.device)
    out, aux = _operation(q.is_cuda)(q, k, v, return_aux=AuxRequest(lse=True), **options)
    return out.transpose(1, 2), aux.lse.transpose(1, 2)


def causal_blocks(queries: int, keys: int, device: torch.device) -> Any:
    """Return the ``BlockMask`` of causal attention: the others of its blocks are not computed."""
    from torch.fx.experimental.symbolic_shapes import has_static_value
    from torch.nn.attention.flex_attention import BlockMask

    past = keys - queries

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= i + past

    fixed = has_static_value(queries) and has_static_value(keys)
    tables = (_constant_tables if fixed else _causal_tables)(queries, keys, device)
    named = dict(zip(_TABLES, tables, strict=True))
    return BlockMask((queries, keys), BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=seen, **named)


def _constant_tables(queries: int, keys: int, device: torch.device) -> tuple[Any, ...]:
    """As `_causal_tables`, which the compiler would look into: a graph has them from the start."""
    return _causal_tables(queries, keys, device)


# As `torch.compiler.assume_constant_result` has it, which imports the compiler: seconds.
_constant_tables._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # kept for those that train, too
def _causal_tables(queries: int, keys: int, device: torch.device) -> tuple[Any, ...]:
    """Counts and places of the blocks to attend to, by arithmetic: no map is made for them."""
    from torch.nn.attention.flex_attention import BlockMask

    past = keys - queries
    rows = torch.arange(0, queries, BLOCK, device=device)
    ends = rows + BLOCK
    touched = (ends.clamp(max=queries) - 1 + past) // BLOCK + 1  # by a row's last query
    whole = torch.where(ends <= queries, (rows + past + 1) // BLOCK, 0)  # seen by its first
    columns = torch.arange(-(-keys // BLOCK), device=device)
    places = (whole[:, None] + columns) % len(columns), columns.expand(len(rows), -1)
    some, of_some, all_, of_all = (
        table.to(torch.int32)[None, None].contiguous()
        for table in (touched - whole, places[0], whole, places[1])
    )
    blocks = BlockMask.from_kv_blocks(
        some, of_some, all_, of_all, BLOCK_SIZE=BLOCK, seq_lengths=(queries, keys)
    )
    return tuple(getattr(blocks, name) for name in _TABLES)


@cache
def _operation(compiled: bool) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention) if compiled else flex_attention
