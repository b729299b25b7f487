"""The backend that `auto` picks on a CPU: each call goes to `blocked` or to `sdpa`.

The bounds are code, not a data file, so that changing them changes the fingerprint of a result.
Nothing is timed while a model runs: the same call always takes the same backend. Shapes as in
`models.kernels.Kernel`.
"""

from torch import Tensor

from difftransformer.models.kernels import blocked, sdpa
from difftransformer.models.kernels.blocked import attention_with_lse, differential_attention

__all__ = ["attention", "attention_with_lse", "differential_attention"]

MIN_QUERIES, MAX_KEYS = 256, 1024
"""Calls of `attention` that `blocked` computes. `sdpa` computes the others; `blocked` computes all
other operations. Measured by benchmarks/attention_backends.py, with its record in
benchmarks/records/attention_backends-2026-11-22.md."""


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """Compute softmax attention (`Kernel.attention`) by the faster of `blocked` and `sdpa`."""
    if MIN_QUERIES <= q.shape[-2] <= k.shape[-2] <= MAX_KEYS:
        return blocked.attention(q, k, v, scale=scale, mask=mask)
    return sdpa.attention(q, k, v, scale=scale, mask=mask)
