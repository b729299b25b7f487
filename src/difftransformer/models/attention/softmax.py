"""Scaled dot-product attention (Transformer, equation 1), with an optional headwise norm.

    O_h = softmax(Q_h K_h' / sqrt(d)) V_h          head h of H
    Y = concat(N(O_1), ..., N(O_H)) W_O            N: RMSNorm over d if `norm`, else identity

Rows of the DIFF paper's table 6: Transformer (16 heads of 128), halved heads (8 of 256), and the
latter with `norm` ("+GroupNorm"). Shapes as in `models.attention.base`.
"""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from difftransformer.config.base import setting
from difftransformer.config.model import AttentionConfig
from difftransformer.models.attention.base import Attention
from difftransformer.models.normalisation import RMSNorm
from difftransformer.models.rotary import Rope


class SoftmaxConfig(AttentionConfig):
    """Options of `softmax`."""

    norm: bool = setting(
        False,
        meaning="RMSNorm over each head's output, one gain shared by all heads.",
        source="DIFF paper, table 6 (+GroupNorm)",
    )
    norm_eps: float = setting(
        1e-5, meaning="Added to the mean square in that norm.", source="microsoft/unilm", gt=0
    )


class SoftmaxAttention(Attention):
    """Multi-head or grouped-query softmax attention."""

    config_class: ClassVar[type[AttentionConfig]] = SoftmaxConfig

    def _make_parameters(self, config: AttentionConfig) -> None:
        assert isinstance(config, SoftmaxConfig)
        self.head_norm = RMSNorm(self.head_dim, config.norm_eps) if config.norm else None

    def output(self, context: Tensor, x: Tensor) -> Tensor:
        """See `Attention.output`: the norm, if there is one, and the projection."""
        context = context if self.head_norm is None else self.head_norm(context)
        return super().output(context, x)

    def one_head(self, x: Tensor, rope: Rope, h: int) -> Tensor:
        """See `Attention.one_head`: equation 1 of the Transformer."""
        o = F.softmax(self.one_logits(x, rope, h), dim=-1) @ self.one_value(x, h)
        return o if self.head_norm is None else self.head_norm.formula(o)
