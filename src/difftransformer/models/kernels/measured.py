"""What `auto` takes on a CPU: for each call the backend that was measured to be the faster one.

Where blocks of queries pay stands here and not in a file of data, so that a change of it counts as
one of the code behind a result. No time is taken while a model runs: the same call always takes the
same backend. Shapes as in `models.kernels.Kernel`.
"""

from torch import Tensor

from difftransformer.models.kernels import blocked, sdpa
from difftransformer.models.kernels.blocked import attention_with_lse, differential_attention

__all__ = ["attention", "attention_with_lse", "differential_attention"]

FEWEST_QUERIES, MOST_KEYS = 256, 1024
"""Calls of `attention` that are by blocks; all others are SDPA's, the other operations by blocks.

As benchmarks/attention_backends.py found: benchmarks/records/attention_backends-2026-11-22.md.
"""


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """See `Kernel.attention`."""
    if FEWEST_QUERIES <= q.shape[-2] <= k.shape[-2] <= MOST_KEYS:
        return blocked.attention(q, k, v, scale=scale, mask=mask)
    return sdpa.attention(q, k, v, scale=scale, mask=mask)
