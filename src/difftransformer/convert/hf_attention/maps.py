"""What the maps of a layer are made of, and the maps in blocks of rows.

Shapes: B = sequences, T = positions, H = output heads, N = noise heads, G = key heads,
d = head_dim, b = queries of a block, e = width of a value.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from difftransformer.models.attention.maps import AttentionBlock
from difftransformer.models.autograd import at_least_fp32, no_autocast
from difftransformer.models.kernels.eager import apply_attention, causal_mask, repeat_kv

KeyMask = Callable[[int, int, torch.device], Tensor]
"""Which of the first ``stop`` keys the queries from ``start`` to ``stop`` see, bool [b, stop]."""
_BLOCK = 256
"""Queries whose rows exist at one time where values are apply_attention."""


def causal_key_mask(start: int, stop: int, device: torch.device) -> Tensor:
    """Every key up to the query's own."""
    return causal_mask(stop - start, stop, device)


def sliding_window_mask(window: int) -> KeyMask:
    """The query's own key and those before it, ``window`` in all."""

    def seen(start: int, stop: int, device: torch.device) -> Tensor:
        return causal_key_mask(start, stop, device).triu(start - window + 1)

    return seen


class NoiseMap(NamedTuple):
    """The maps that are subtracted, each from H / N neighboring heads.

    Attributes:
        queries: [B, N, T, d].
        keys: [B, G, T, d].
        factor: What they are multiplied by, a scalar.
    """

    queries: Tensor
    keys: Tensor
    factor: Tensor


@dataclass(frozen=True)
class CapturedAttention:
    """Softmax maps of a layer, and those that are subtracted from them if it has some.

    Attributes:
        layer: 0-based index of the layer.
        queries: [B, H, T, d], positions in them.
        keys: [B, G, T, d], likewise; each serves H / G neighboring heads.
        scale: Factor of the logits.
        values: What the maps gather, [B, G, T, e].
        noise: None: heads have one map.
        softcap: c of c tanh(logits / c); None: the logits stay as they are.
        seen: Which keys count.
        projection: What gets the outputs of all heads joined, [B, T, H e]; None: not known.
    """

    layer: int
    queries: Tensor
    keys: Tensor
    scale: float
    values: Tensor
    noise: NoiseMap | None = None
    softcap: float | None = None
    seen: KeyMask = causal_key_mask
    projection: nn.Module | None = None

    @property
    def length(self) -> int:
        """T."""
        return self.queries.shape[2]

    def block(self, start: int, stop: int) -> AttentionBlock:
        """Rows of some queries, in float32 or wider."""
        seen = self.seen(start, stop, self.queries.device)
        first = self._softmax(self.queries, self.keys, start, seen)
        if self.noise is None:
            return AttentionBlock(start, first, None, seen, self.layer)
        second = self._softmax(self.noise.queries, self.noise.keys, start, seen)
        second = repeat_kv(second, first.shape[1])
        weights = first - self.noise.factor * second
        return AttentionBlock(start, weights, (first, second), seen, self.layer)

    def iter_blocks(self, size: int) -> Iterator[AttentionBlock]:
        """Return an iterator over all rows, up to ``size`` queries at a time, computed lazily."""
        T = self.length
        return (self.block(start, min(start + size, T)) for start in range(0, T, size))

    def attend(self) -> Tensor:
        """Apply the maps to the values: [B, T, H, e]."""
        values, blocks = self.values, self.iter_blocks(_BLOCK)
        heads = [
            apply_attention(rows.weights, values[:, :, : rows.mask.shape[1]]) for rows in blocks
        ]
        return torch.cat(heads, dim=1)

    def _softmax(self, queries: Tensor, keys: Tensor, start: int, seen: Tensor) -> Tensor:
        q, k = queries[:, :, start : start + len(seen)], keys[:, :, : seen.shape[1]]
        with no_autocast(q):
            logits = at_least_fp32(q) @ at_least_fp32(repeat_kv(k, q.shape[1])).mT * self.scale
        if self.softcap is not None:
            logits = self.softcap * (logits / self.softcap).tanh()
        return logits.masked_fill(~seen, float("-inf")).softmax(dim=-1)
