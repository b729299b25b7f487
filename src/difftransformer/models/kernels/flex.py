"""PyTorch's FlexAttention, for what needs the log-sum-exp on a GPU: it has gradients through it.

Shapes as in `models.kernels.Kernel`.
"""

from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor


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
    out, aux = _operation(q.is_cuda)(
        q,
        k,
        v,
        score_mod=None if mask is None else allowed,
        block_mask=_causal(queries, keys, q.device) if mask is None and queries > 1 else None,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
        return_aux=AuxRequest(lse=True),
    )
    return out.transpose(1, 2), aux.lse.transpose(1, 2)


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # kept for those that train, too
def _causal(queries: int, keys: int, device: torch.device) -> Any:
    """Blocks that hold a pair to attend to; the others are not computed."""
    from torch.nn.attention.flex_attention import create_block_mask

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= i + (keys - queries)

    return create_block_mask(seen, None, None, queries, keys, device=str(device))


@cache
def _operation(compiled: bool) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention) if compiled else flex_attention
