"""Scaled dot-product attention (Transformer, equation 1), with an optional per-head norm.

    O_h = softmax(Q_h K_h' / sqrt(d)) V_h          head h of H
    Y = concat(N(O_1), ..., N(O_H)) W_O            N: RMSNorm over d if `norm`, else identity

Rows of the DIFF paper's table 6: Transformer (16 heads of 128), half-head Transformer (8 of 256),
and the latter with `norm` ("+GroupNorm"). With `gain`, N multiplies by a learned vector of d: the
weight of the norm without its division. Shapes as in `models.attention.base`.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.config import AttentionConfig, setting
from difftransformer.models.normalization import RMSNorm
from difftransformer.models.rotary import Rope


@dataclass(frozen=True, kw_only=True)
class SoftmaxConfig(AttentionConfig):
    """Options of the `softmax` variant."""

    norm: bool = setting(
        False,
        meaning="RMSNorm over each head's output, one weight shared by all heads.",
        source="DIFF paper, table 6 (+GroupNorm)",
    )
    norm_eps: float = setting(
        1e-5, meaning="Added to the mean square in that norm.", source="microsoft/unilm", gt=0
    )
    gain: float | None = setting(
        None,
        meaning="Initial value of a learned gain of d, shared by all heads, that multiplies each "
        "head's output (after the norm, if any). Left out: there is none.",
        source="ours (a control)",
    )


class SoftmaxAttention(Attention):
    """Multi-head or grouped-query softmax attention, with an optional RMSNorm per head."""

    config_class: ClassVar[type[AttentionConfig]] = SoftmaxConfig

    def __init__(self, config: SoftmaxConfig, d_model: int, layer_index: int, backend: str) -> None:
        super().__init__(config, d_model, layer_index, backend)
        self.build_projections()
        self.head_norm = RMSNorm(self.head_dim, config.norm_eps) if config.norm else None
        self.gain = config.gain
        self.head_gain = None if self.gain is None else nn.Parameter(torch.empty(self.head_dim))

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the layer's output, [B, T, D]; arguments as in `Attention.forward`."""
        q, k, v, _ = self.project(x, rope)  # [B, H, T, d], [B, G, T, d], [B, G, T, d]
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        attn = self.kernel.attention(q, k, v, scale=self.scale, mask=mask)  # [B, T, H, d]
        if self.head_norm is not None:
            attn = self.head_norm(attn)
        if self.head_gain is not None:
            attn = attn * self.head_gain.to(attn.dtype)
        return self.o_proj(attn.flatten(2))

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Set the learned gain to its initial value in the options."""
        assert self.gain is not None
        parameter.fill_(self.gain)
