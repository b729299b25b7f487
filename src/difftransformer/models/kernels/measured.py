"""What `auto` takes on a CPU: for each call the backend that was measured to be the faster one.

Where blocks of queries pay stands here and not in a file of data, so that a change of it counts as
one of the code behind a result; whether they pay on this processor at all is a `choices.Choice`,
measured once for it. No time is taken while a model runs: the same call always takes the same
backend. Shapes as in `models.kernels.Kernel`.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from difftransformer.models.choices import Choice, Trials
from difftransformer.models.kernels import blocked, sdpa
from difftransformer.models.kernels.blocked import attention_with_lse

__all__ = ["attention", "attention_with_lse", "differential_attention"]

FEWEST_QUERIES, MOST_KEYS = 256, 1024
"""Calls of `attention` that are by blocks; all others are SDPA's, the other operations by blocks.

As benchmarks/attention_backends.py found: benchmarks/records/attention_backends-2026-11-22.md.
"""
_BACKENDS: dict[str, Any] = {"blocked": blocked, "sdpa": sdpa}


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """See `Kernel.attention`."""
    if FEWEST_QUERIES <= q.shape[-2] <= k.shape[-2] <= MOST_KEYS and plain() == "blocked":
        return blocked.attention(q, k, v, scale=scale, mask=mask)
    return sdpa.attention(q, k, v, scale=scale, mask=mask)


def differential_attention(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """See `Kernel.differential_attention`."""
    backend = blocked if q.shape[-2] == 1 else _BACKENDS[differential()]
    out: Tensor = backend.differential_attention(q, k, v, lam, scale=scale, mask=mask)
    return out


def _trials(operation: str, further: tuple[Tensor, ...], e: int) -> Trials:
    """Two sequences of 512 positions, four maps of 32, forward and backward."""
    q, v = torch.ones(2, 4, 512, 32), torch.ones(2, 4 // (e // 32), 512, e)

    def work(backend: Any) -> None:
        given = [one.detach().requires_grad_() for one in (q, q, v)]
        getattr(backend, operation)(*given, *further, scale=0.2, mask=None).sum().backward()

    return {way: partial(work, backend) for way, backend in _BACKENDS.items()}


plain = Choice("attention", ("blocked", "sdpa"), partial(_trials, "attention", (), 32))
"""Who attends by single maps where blocks of queries may pay."""
differential = Choice(
    "differential_attention",
    ("blocked", "sdpa"),
    lambda: _trials("differential_attention", (torch.ones(()),), 64),
)
"""Who attends by differences of maps."""
