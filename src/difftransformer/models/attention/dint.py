"""DINT attention (arXiv 2501.17486), in a causal form for decoders.

    O_h = (A1 - lambda A2 + lambda A3) V        A1, A2, lambda: those of V1
    A3_ij = mean of A1_nj over the rows n <= i

so that rows sum to one. Deviation from the paper: in what was available of the source, A3 is the
mean over all rows, which shows the future to a decoder; ours is over the rows up to the query.
Head layout, lambda, norm and the factor (1 - lambda_init) are V1's. Shapes as in
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
"""Number of rows of a map that are materialized at a time for a sum."""


@dataclass(frozen=True, kw_only=True)
class DintConfig(DiffV1Config):
    """Options of `dint`, the same as those of `diff_v1`."""


class DintAttention(DifferentialAttention):
    """DINT attention without materialized maps.

    A1 and A2 are the two softmax maps. Each row of A3 is the mean of the rows of A1 up to it, so
    A3 V is the running mean of A1 V over positions.

    The mean needs every row of A1 V, so the cache stores Q1 beside the keys (H heads of d more per
    position), and each decoding step computes all rows of A1 V again.
    """

    config_class: ClassVar[type[AttentionConfig]] = DintConfig
    value_matmuls_per_head: ClassVar[int] = 2

    def project(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return V1's projections with Q1 of each head appended to the keys: [B, 2G + H, T, d]."""
        q, k, v, extra = super().project(x, rope)
        return q, torch.cat((k, q[:, 0::2]), dim=1), v, extra

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the layer's output, [B, T, D]; arguments as in `Attention.forward`."""
        q, k, v, _ = self.project(x, rope)  # [B, 2H, T, d], [B, 2G + H, T, d], [B, G, T, 2d]
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        k, q1 = k.tensor_split((self.num_k_heads,), dim=1)  # [B, 2G, S, d], [B, H, S, d]
        square_mask = None if mask is None else _square_mask(mask)
        attn1 = self.kernel.attention(q1, k[:, 0::2], v, scale=self.scale, mask=square_mask)
        attn2 = self.kernel.attention(q[:, 1::2], k[:, 1::2], v, scale=self.scale, mask=mask)
        # A1 V + lambda (A3 V - A2 V), [B, T, H, 2d]; ``attn1`` is A1 V of all S queries.
        T, lam = q.shape[2], self.lambda_full()
        attn = attn1[:, -T:] + lam * (_running_mean(attn1, T, mask) - attn2)
        attn = norm_and_scale(attn.to(attn1.dtype), self.head_norm, self.head_scale)
        return self.o_proj(attn.flatten(2))

    def component_maps(self, q: Tensor, k: Tensor, extra: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two causal softmax maps A1 and A2, [B, H, T, S] each."""
        return super().component_maps(q, k[:, : self.num_k_heads], extra)

    def attention_weights(self, q: Tensor, k: Tensor, extra: Tensor) -> Tensor:
        """Return A1 - lambda A2 + lambda A3, [B, H, T, S].

        A1 and A2 are the two softmax maps, and A3 is the causal mean of A1 over queries. Per head
        A3 takes S^2 T / 2 multiply-adds and S T memory.
        """
        map1, map2 = self.component_maps(q, k, extra)
        T, S = map1.shape[2:]
        sums = causal_mask(T, T, q.device).to(map1.dtype) @ map1 + self._sum_of_rows(k, S - T)
        counts = torch.arange(S - T + 1, S + 1, device=q.device, dtype=map1.dtype)
        return map1 + self.lambda_full() * (sums / counts[:, None] - map2)

    def _sum_of_rows(self, k: Tensor, rows: int) -> Tensor:
        """Return the sum of the first ``rows`` rows of A1, [B, H, 1, S]; ``k`` from `project`."""
        k, q1 = k.tensor_split((self.num_k_heads,), dim=1)
        sums = q1.new_zeros(*q1.shape[:2], 1, k.shape[2], dtype=torch.float32)
        for start in range(0, rows, ROWS):
            stop = min(start + ROWS, rows)
            block = attention_map(
                q1[:, :, start:stop], k[:, 0::2, :stop], scale=self.scale, mask=None
            )
            sums[..., :stop] += block.sum(dim=2, keepdim=True)
        return sums


def _running_mean(x: Tensor, T: int, mask: Tensor | None) -> Tensor:
    """Return the means of x [B, S, H, *] over the positions visible to each of the last T queries.

    The result is in float32 or wider, [B, T, H, *].
    """
    full = at_least_fp32(x)
    if mask is None and x.is_cuda and torch.are_deterministic_algorithms_enabled():
        # cumsum on a GPU is not deterministic
        mask = causal_mask(T, x.shape[1], x.device).view(1, 1, T, -1)
    if mask is None:
        counts = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=full.dtype)
        return full.cumsum(dim=1)[:, -T:] / counts[-T:, None, None]
    allowed = mask[:, 0].to(full.dtype)
    weights = allowed / allowed.sum(dim=-1, keepdim=True)
    return (weights @ full.flatten(2)).view(len(x), T, *x.shape[2:])


def _square_mask(mask: Tensor) -> Tensor:
    """Extend a mask [*, 1, T, S] to all S queries.

    An earlier query may attend to itself, and to earlier keys that the last query may attend to.
    """
    T, S = mask.shape[-2:]
    if T == S:
        return mask
    earlier = causal_mask(S, S, mask.device) & mask[..., -1:, :]
    square = earlier | torch.eye(S, dtype=torch.bool, device=mask.device)
    return torch.cat((square[..., : S - T, :], mask), dim=-2)
