"""Softmax off by one (softmax_1; github softmax1/Flash-Attention-Softmax-N).

    A_ij = exp(z_ij) / (1 + sum_k exp(z_ik))        z = Q_h K_h' / sqrt(d)
    O_h = A V_h,    Y = concat(O_1, ..., O_H) W_O

A sink of logit 0 that is not learned: sigmoid(lse_i) softmax(z_i). Shapes as in
`models.attention.base`.
"""

from typing import ClassVar

import torch
from torch import Tensor

from difftransformer.config.model import AttentionConfig
from difftransformer.models.attention.base import Attention
from difftransformer.models.kernels.eager import logits


class OffByOneConfig(AttentionConfig):
    """`softmax_off_by_one` has no options of its own."""


class OffByOneAttention(Attention):
    """Grouped-query attention that may attend to nothing."""

    config_class: ClassVar[type[AttentionConfig]] = OffByOneConfig

    def context(
        self, q: Tensor, k: Tensor, v: Tensor, further: Tensor, mask: Tensor | None
    ) -> Tensor:
        """See `Attention.context`."""
        out, lse = self.kernel.attention_with_lse(q, k, v, scale=self.scale, mask=mask)
        return out * torch.sigmoid(lse).unsqueeze(-1).to(out.dtype)

    def weights(self, q: Tensor, k: Tensor, further: Tensor) -> Tensor:
        """See `Attention.weights`."""
        z = logits(q, k, scale=self.scale, mask=None)
        return z.softmax(dim=-1) * z.logsumexp(dim=-1, keepdim=True).sigmoid()
