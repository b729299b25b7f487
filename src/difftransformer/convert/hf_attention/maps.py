"""Inputs of a captured attention layer, and its attention maps in blocks of queries.

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

MaskFunction = Callable[[int, int, torch.device], Tensor]
"""``mask(start, stop, device)`` returns the keys that queries ``start`` to ``stop`` - 1 may attend
to among the first ``stop`` keys, bool [stop - start, stop]."""
_BLOCK = 256
"""Number of queries whose attention weights are materialized at a time."""


def causal(start: int, stop: int, device: torch.device) -> Tensor:
    """Return the causal mask of queries ``start`` to ``stop`` - 1, bool [stop - start, stop]."""
    return causal_mask(stop - start, stop, device)


def sliding_window(window: int) -> MaskFunction:
    """Return a function that makes the causal mask of the last ``window`` keys of each query."""

    def mask(start: int, stop: int, device: torch.device) -> Tensor:
        return causal(start, stop, device).triu(start - window + 1)

    return mask


class NoiseMaps(NamedTuple):
    """Queries, keys and factor of the subtracted maps of a captured layer.

    Each of the N maps is shared by H / N neighboring heads.

    Attributes:
        queries: Queries of the noise heads, [B, N, T, d].
        keys: Keys of the noise heads, [B, G, T, d].
        lam: Factor of the subtracted maps, a scalar.
    """

    queries: Tensor
    keys: Tensor
    lam: Tensor


@dataclass(frozen=True)
class CapturedAttention:
    """The captured inputs of a layer's attention, from which its maps are computed.

    Attributes:
        layer: 0-based index of the layer.
        queries: Queries [B, H, T, d], with rotary positions applied.
        keys: Keys [B, G, T, d], likewise; each serves H / G neighboring heads.
        scale: Factor of the logits.
        values: Values [B, G, T, e].
        noise: Inputs of the subtracted maps; None: heads have one map.
        softcap: c, if logits are soft-capped to c tanh(logits / c); None: they are not.
        mask: Function that returns the mask of a range of queries.
        projection: The output projection, which takes [B, T, H e]; None: not found.
    """

    layer: int
    queries: Tensor
    keys: Tensor
    scale: float
    values: Tensor
    noise: NoiseMaps | None = None
    softcap: float | None = None
    mask: MaskFunction = causal
    projection: nn.Module | None = None

    @property
    def length(self) -> int:
        """Number of positions, T."""
        return self.queries.shape[2]

    def block(self, start: int, stop: int) -> AttentionBlock:
        """Return the map rows of queries ``start`` to ``stop`` - 1, in float32 or wider."""
        mask = self.mask(start, stop, self.queries.device)
        map1 = self._softmax(self.queries, self.keys, start, mask)
        if self.noise is None:
            return AttentionBlock(start, map1, None, mask, self.layer)
        map2 = self._softmax(self.noise.queries, self.noise.keys, start, mask)
        map2 = repeat_kv(map2, map1.shape[1])
        weights = map1 - self.noise.lam * map2
        return AttentionBlock(start, weights, (map1, map2), mask, self.layer)

    def iter_blocks(self, size: int) -> Iterator[AttentionBlock]:
        """Return a lazy iterator over all map rows, at most ``size`` queries at a time."""
        T = self.length
        return (self.block(start, min(start + size, T)) for start in range(0, T, size))

    def attend(self) -> Tensor:
        """Return the head outputs computed from the captured inputs, [B, T, H, e]."""
        outputs = [
            apply_attention(block.weights, self.values[:, :, : block.mask.shape[1]])
            for block in self.iter_blocks(_BLOCK)
        ]
        return torch.cat(outputs, dim=1)

    def _softmax(self, queries: Tensor, keys: Tensor, start: int, mask: Tensor) -> Tensor:
        q, k = queries[:, :, start : start + len(mask)], keys[:, :, : mask.shape[1]]
        with no_autocast(q):
            logits = at_least_fp32(q) @ at_least_fp32(repeat_kv(k, q.shape[1])).mT * self.scale
        if self.softcap is not None:
            logits = self.softcap * (logits / self.softcap).tanh()
        return logits.masked_fill(~mask, float("-inf")).softmax(dim=-1)
