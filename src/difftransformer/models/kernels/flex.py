"""PyTorch's FlexAttention, for what needs the log-sum-exp on a GPU: it has gradients through it.

Shapes as in `models.kernels.Kernel`.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """See `Kernel.attention_with_lse`; on the CPU plain PyTorch, without gradients."""
    from torch.nn.attention.flex_attention import AuxRequest  # imports the compiler: seconds

    ahead = k.shape[-2] - q.shape[-2]

    def allowed(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        seen = j <= i + ahead if mask is None else mask[b if mask.shape[0] > 1 else 0, 0, i, j]
        return torch.where(seen, score, -float("inf"))

    out, aux = _operation(q.is_cuda)(
        q,
        k,
        v,
        score_mod=allowed,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
        return_aux=AuxRequest(lse=True),
    )
    return out.transpose(1, 2), aux.lse.transpose(1, 2)


@cache
def _operation(compiled: bool) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention) if compiled else flex_attention
