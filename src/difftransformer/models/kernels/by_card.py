"""What `auto` takes on a card that is in the table: for each call the fastest, as measured.

`by_card.json` is the table, by the name of the card, the precision and the operation: pairs of a
width of keys, the least first, and of pairs of a number of keys and the backend that is fastest
from there on. A head takes the first width that holds it, or the last. benchmarks/gpu/attention.py
measures, and `benchmarks/gpu/all.py --adopt` writes it. No time is taken while a model runs. Shapes
as in `models.kernels.Kernel`.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from difftransformer.models import kernels
from difftransformer.models.kernels import sdpa

TABLE = Path(__file__).with_suffix(".json")
OPERATIONS = ("attention", "attention_with_lse", "differential_attention")
_TABLE: dict[str, Any] = json.loads(TABLE.read_text())
_cards: list[str] = []
_WIDEST_HEAD = 128
"""Largest head_dim that was measured; as in `fused.tiles`, which is imported only if chosen."""
_ALIGNED = 16
_PRECISIONS = {torch.bfloat16: "bf16", torch.float16: "bf16", torch.float32: "fp32"}


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """See `Kernel.attention`."""
    found: Tensor = _fastest("attention", q, k, v, mask).attention(q, k, v, scale=scale, mask=mask)
    return found


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """See `Kernel.attention_with_lse`."""
    backend = _fastest("attention_with_lse", q, k, v, mask)
    found: tuple[Tensor, Tensor] = backend.attention_with_lse(q, k, v, scale=scale, mask=mask)
    return found


def differential_attention(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """See `Kernel.differential_attention`."""
    backend = _fastest("differential_attention", q, k, v, mask)
    found: Tensor = backend.differential_attention(q, k, v, lam, scale=scale, mask=mask)
    return found


def card() -> str:
    """Name of the card that is current; also notes those of all, before a compiler looks on."""
    _cards[:] = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return _cards[torch.cuda.current_device()]


def obstacle(device: str, precision: str) -> str | None:
    """See `kernels.obstacle`."""
    if device != "cuda" or not torch.cuda.is_available():
        return f"it is for NVIDIA GPUs and the device is {device}; take sdpa or auto"
    name = card()
    if not knows(name, precision):
        return f"its table lacks {name} in {precision}; take auto, or run benchmarks/gpu"
    for backend in sorted(backends(name, precision)):
        if reason := kernels.obstacle(backend, device, precision):
            return f"its table has {backend} for {name}, which cannot run: {reason}"
    return None


def knows(card: str, precision: str) -> bool:
    """Whether the table has a card in a precision."""
    return precision in _TABLE.get(card, {})


def table(card: str, precision: str) -> dict[str, Any]:
    """What the table has for a card in a precision, by operation."""
    return dict(_TABLE[card][precision])


def backends(card: str, precision: str) -> set[str]:
    """Names of the backends that the table has for a card in a precision."""
    operations = _TABLE.get(card, {}).get(precision, {}).values()
    return {backend for one in operations for _, steps in one for _, backend in steps}


def fastest(card: str, precision: str, operation: str, head_dim: int, keys: int) -> str:
    """Name of the backend that the table has for heads of a width and so many keys."""
    by_width = _TABLE[card][precision][operation]
    steps = next((steps for width, steps in by_width if width >= head_dim), by_width[-1][1])
    return str(next(backend for least, backend in reversed(steps) if keys >= least))


def _fastest(operation: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Any:
    """Calls unlike those that were measured are SDPA's, which takes all."""
    if not _cards:
        card()
    card_of_q, precision = _cards[q.device.index or 0], _PRECISIONS.get(q.dtype, "")
    d, e = q.shape[-1], v.shape[-1]
    # Rows that are no multiple of 16 numbers are read one by one, and spill registers.
    measured = d <= _WIDEST_HEAD and e <= 2 * d and d % _ALIGNED == e % _ALIGNED == 0
    if mask is not None or not measured or not knows(card_of_q, precision):
        return sdpa
    return kernels.kernel(fastest(card_of_q, precision, operation, d, k.shape[-2]))
