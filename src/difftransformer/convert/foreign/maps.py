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
from difftransformer.models.gradients import full_precision, no_autocast
from difftransformer.models.kernels.eager import causal, gathered, per_head

Seen = Callable[[int, int, torch.device], Tensor]
"""Which of the first ``stop`` keys the queries from ``start`` to ``stop`` see, bool [b, stop]."""
_BLOCK = 256
"""Queries whose rows exist at one time where values are gathered."""


def all_before(start: int, stop: int, device: torch.device) -> Tensor:
    """Every key up to the query's own."""
    return causal(stop - start, stop, device)


def latest(window: int) -> Seen:
    """The query's own key and those before it, ``window`` in all."""

    def seen(start: int, stop: int, device: torch.device) -> Tensor:
        return all_before(start, stop, device).triu(start - window + 1)

    return seen


class Noise(NamedTuple):
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
class Maps:
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
    noise: Noise | None = None
    softcap: float | None = None
    seen: Seen = all_before
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
        second = per_head(second, first.shape[1])
        weights = first - self.noise.factor * second
        return AttentionBlock(start, weights, (first, second), seen, self.layer)

    def iter_blocks(self, size: int) -> Iterator[AttentionBlock]:
        """Return an iterator over all rows, up to ``size`` queries at a time, computed lazily."""
        T = self.length
        return (self.block(start, min(start + size, T)) for start in range(0, T, size))

    def attend(self) -> Tensor:
        """Apply the maps to the values: [B, T, H, e]."""
        values, blocks = self.values, self.iter_blocks(_BLOCK)
        heads = [gathered(rows.weights, values[:, :, : rows.seen.shape[1]]) for rows in blocks]
        return torch.cat(heads, dim=1)

    def _softmax(self, queries: Tensor, keys: Tensor, start: int, seen: Tensor) -> Tensor:
        q, k = queries[:, :, start : start + len(seen)], keys[:, :, : seen.shape[1]]
        with no_autocast(q):
            logits = full_precision(q) @ full_precision(per_head(k, q.shape[1])).mT * self.scale
        if self.softcap is not None:
            logits = self.softcap * (logits / self.softcap).tanh()
        return logits.masked_fill(~seen, float("-inf")).softmax(dim=-1)
