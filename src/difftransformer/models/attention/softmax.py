"""Scaled dot-product attention (Transformer, equation 1), with an optional headwise norm.

    O_h = softmax(Q_h K_h' / sqrt(d)) V_h          head h of H
    Y = concat(N(O_1), ..., N(O_H)) W_O            N: RMSNorm over d if `norm`, else identity

Rows of the DIFF paper's table 6: Transformer (16 heads of 128), halved heads (8 of 256), and the
latter with `norm` ("+GroupNorm"). With `gain` N is the product with a vector of d that is learned:
what the norm has, but for the division. Shapes as in `models.attention.base`.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from difftransformer.config.base import setting
from difftransformer.config.model import AttentionConfig
from difftransformer.models.attention.base import Attention
from difftransformer.models.normalisation import RMSNorm


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
    gain: float | None = setting(
        None,
        meaning="Start of a learned gain of d, shared by all heads, that multiplies each head's "
        "output and divides by no root mean square; after the norm where there is one. Left out: "
        "there is none.",
        source="ours (a control)",
    )


class SoftmaxAttention(Attention):
    """Multi-head or grouped-query softmax attention."""

    config_class: ClassVar[type[AttentionConfig]] = SoftmaxConfig

    def _make_parameters(self, config: AttentionConfig) -> None:
        assert isinstance(config, SoftmaxConfig)
        self.head_norm = RMSNorm(self.head_dim, config.norm_eps) if config.norm else None
        self.gain = config.gain
        self.head_gain = None if self.gain is None else nn.Parameter(torch.empty(self.head_dim))

    def output(self, context: Tensor, x: Tensor) -> Tensor:
        """See `Attention.output`: the norm and the gain, if there are any, and the projection."""
        context = context if self.head_norm is None else self.head_norm(context)
        if self.head_gain is not None:
            context = context * self.head_gain.to(context.dtype)
        return super().output(context, x)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Set the gain."""
        assert self.gain is not None
        parameter.fill_(self.gain)
