"""DINT attention (arXiv 2501.17486), an interpretation for decoders.

    O_h = (A1 - lambda A2 + lambda A3) V        A1, A2, lambda: those of V1
    A3_ij = mean of A1_nj over the rows n <= i

so that rows sum to one. Interpretation: what could be read of the source has A3 as the mean over
all rows, which shows the future to a decoder; ours takes the rows up to the query's own. Head
layout, lambda, norm and the factor (1 - lambda_init) are V1's. Shapes as in
`models.attention.base`.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from difftransformer.models.attention.base import Cache
from difftransformer.models.attention.diff_v1 import DifferentialAttention, DiffV1Config
from difftransformer.models.autograd import at_least_fp32
from difftransformer.models.config import AttentionConfig
from difftransformer.models.kernels.eager import attention_map, causal_mask
from difftransformer.models.normalization import norm_and_scale
from difftransformer.models.rotary import Rope

ROWS = 256
"""Rows of a map that are summed at one time where their sum alone is needed."""


@dataclass(frozen=True, kw_only=True)
class DintConfig(DiffV1Config):
    """Options of `dint`, which are V1's."""


class DintAttention(DifferentialAttention):
    """DINT without a whole map: A3 V is the running mean of A1 V over positions.

    The mean needs every row of A1 V, so the cache keeps the first queries beside the keys (H heads
    of d more for each position) and a step of decoding computes all rows of A1 V again.
    """

    config_class: ClassVar[type[AttentionConfig]] = DintConfig
    value_matmuls_per_head: ClassVar[int] = 2

    def project(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As in V1, with each head's first query appended to the keys: [B, 2G + H, T, d]."""
        q, k, v, extra = super().project(x, rope)
        return q, torch.cat((k, q[:, 0::2]), dim=1), v, extra

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]; arguments as in `Attention.forward`."""
        q, k, v, _ = self.project(x, rope)  # [B, 2H, T, d], [B, 2G + H, T, d], [B, G, T, 2d]
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        k, first_q = k.tensor_split((self.num_k_heads,), dim=1)  # [B, 2G, S, d], [B, H, S, d]
        square = None if mask is None else _square(mask)
        first = self.kernel.attention(first_q, k[:, 0::2], v, scale=self.scale, mask=square)
        second = self.kernel.attention(q[:, 1::2], k[:, 1::2], v, scale=self.scale, mask=mask)
        # A1 V + lambda (A3 V - A2 V), [B, T, H, 2d]; ``first`` is A1 V of all S queries.
        T, lam = q.shape[2], self.lambda_full()
        heads = first[:, -T:] + lam * (_row_means(first, T, mask) - second)
        heads = norm_and_scale(heads.to(first.dtype), self.head_norm, self.head_scale)
        return self.o_proj(heads.flatten(2))

    def component_maps(self, q: Tensor, k: Tensor, extra: Tensor) -> tuple[Tensor, Tensor]:
        """See `Attention.component_maps`: A1 and A2."""
        return super().component_maps(q, k[:, : self.num_k_heads], extra)

    def attention_weights(self, q: Tensor, k: Tensor, extra: Tensor) -> Tensor:
        """See `Attention.attention_weights`; S^2 T / 2 multiply-adds for A3, and S T memory."""
        first, second = self.component_maps(q, k, extra)
        T, S = first.shape[2:]
        sums = causal_mask(T, T, q.device).to(first.dtype) @ first + self._earlier(k, S - T)
        counts = torch.arange(S - T + 1, S + 1, device=q.device, dtype=first.dtype)
        return first + self.lambda_full() * (sums / counts[:, None] - second)

    def _earlier(self, k: Tensor, rows: int) -> Tensor:
        """Sum of the first ``rows`` rows of A1, [B, H, 1, S]; ``k`` as `project` returns it."""
        k, first_q = k.tensor_split((self.num_k_heads,), dim=1)
        sums = first_q.new_zeros(*first_q.shape[:2], 1, k.shape[2], dtype=torch.float32)
        for start in range(0, rows, ROWS):
            stop = min(start + ROWS, rows)
            part = attention_map(
                first_q[:, :, start:stop], k[:, 0::2, :stop], scale=self.scale, mask=None
            )
            sums[..., :stop] += part.sum(dim=2, keepdim=True)
        return sums


def _row_means(rows: Tensor, T: int, mask: Tensor | None) -> Tensor:
    """Means of [B, S, H, *] over the rows that each of the last T positions sees, in float32."""
    full = at_least_fp32(rows)
    if mask is None and rows.is_cuda and torch.are_deterministic_algorithms_enabled():
        mask = causal_mask(T, rows.shape[1], rows.device).view(1, 1, T, -1)  # no cumsum
    if mask is None:
        counts = torch.arange(1, rows.shape[1] + 1, device=rows.device, dtype=full.dtype)
        return full.cumsum(dim=1)[:, -T:] / counts[-T:, None, None]
    seen = mask[:, 0].to(full.dtype)
    shares = seen / seen.sum(dim=-1, keepdim=True)
    return (shares @ full.flatten(2)).view(len(rows), T, *rows.shape[2:])


def _square(mask: Tensor) -> Tensor:
    """Extend a mask [*, 1, T, S] to all S queries: what the last may see, causally, and itself."""
    T, S = mask.shape[-2:]
    if T == S:
        return mask
    earlier = causal_mask(S, S, mask.device) & mask[..., -1:, :]
    whole = earlier | torch.eye(S, dtype=torch.bool, device=mask.device)
    return torch.cat((whole[..., : S - T, :], mask), dim=-2)
