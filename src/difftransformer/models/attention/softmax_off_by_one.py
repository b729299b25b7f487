"""Softmax off by one (softmax_1; github softmax1/Flash-Attention-Softmax-N).

    A_ij = exp(z_ij) / (1 + sum_k exp(z_ik))        z = Q_h K_h' / sqrt(d)
    O_h = A V_h,    Y = concat(O_1, ..., O_H) W_O

This is a fixed attention sink of logit 0: A = sigmoid(lse_i) softmax(z_i). Shapes as in
`models.attention.base`.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.config import AttentionConfig
from difftransformer.models.kernels.eager import logits
from difftransformer.models.rotary import Rope


@dataclass(frozen=True, kw_only=True)
class OffByOneConfig(AttentionConfig):
    """Options of `softmax_off_by_one`: those of every variant, and no others."""


class OffByOneAttention(Attention):
    """Grouped-query attention with 1 added to the softmax's denominator.

    The weights of the keys therefore sum to less than one.
    """

    config_class: ClassVar[type[AttentionConfig]] = OffByOneConfig
    saved_maps_per_head: ClassVar[float] = 2.5

    def __init__(
        self, config: OffByOneConfig, d_model: int, layer_index: int, backend: str
    ) -> None:
        super().__init__(config, d_model, layer_index, backend)
        self.build_projections()

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the layer's output, [B, T, D]; arguments as in `Attention.forward`."""
        q, k, v, _ = self.project(x, rope)  # [B, H, T, d], [B, G, T, d], [B, G, T, d]
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        # [B, T, H, d] and [B, T, H]
        attn, lse = self.kernel.attention_with_lse(q, k, v, scale=self.scale, mask=mask)
        attn = attn * torch.sigmoid(lse).unsqueeze(-1).to(attn.dtype)
        return self.o_proj(attn.flatten(2))

    def attention_weights(self, q: Tensor, k: Tensor, extra: Tensor) -> Tensor:
        """Return exp(z) / (1 + sum(exp(z))) of the logits z, [B, H, T, S].

        It is computed as sigmoid(lse) softmax(z), with lse = log(sum(exp(z))).
        """
        z = logits(q, k, scale=self.scale, mask=None)
        return z.softmax(dim=-1) * z.logsumexp(dim=-1, keepdim=True).sigmoid()
