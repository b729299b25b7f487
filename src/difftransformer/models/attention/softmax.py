"""Scaled dot-product attention (Transformer, equation 1), with an optional headwise norm.

    O_h = softmax(Q_h K_h' / sqrt(d)) V_h          head h of H
    Y = concat(N(O_1), ..., N(O_H)) W_O            N: RMSNorm over d if `norm`, else identity

Rows of the DIFF paper's table 6: Transformer (16 heads of 128), halved heads (8 of 256), and the
latter with `norm` ("+GroupNorm"). Shapes as in `models.attention.base`.
"""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from difftransformer.config.base import setting
from difftransformer.config.model import AttentionConfig
from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.kernels.eager import attention_map
from difftransformer.models.matrices import Linear
from difftransformer.models.normalisation import RMSNorm
from difftransformer.models.rotary import Rope, rotate, split_heads


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
    """Multi-head or grouped-query softmax attention.

    Rows of ``qkv_proj``: queries [H, d], keys [G, d], values [G, d].
    """

    config_class: ClassVar[type[AttentionConfig]] = SoftmaxConfig

    def __init__(
        self, config: AttentionConfig, d_model: int, layer_index: int, backend: str
    ) -> None:
        super().__init__(config, d_model, layer_index, backend)
        assert isinstance(config, SoftmaxConfig)
        self.num_heads, self.num_kv_heads = config.output_heads, config.kv_heads
        self.head_dim = config.head_dim
        rows = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        self.qkv_proj = Linear(d_model, rows)
        self.o_proj = Linear(self.num_heads * self.head_dim, d_model)
        self.head_norm = RMSNorm(self.head_dim, config.norm_eps) if config.norm else None

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """See `Attention.forward`."""
        q, k, v = self._heads(x, rope)
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        out = self.kernel.attention(q, k, v, scale=self.head_dim**-0.5, mask=mask)
        return self.output(out, x)

    def output(self, context: Tensor, x: Tensor) -> Tensor:
        """See `Attention.output`: the norm, if there is one, and the projection."""
        context = context if self.head_norm is None else self.head_norm(context)
        return super().output(context, x)

    def attention_maps(self, x: Tensor, rope: Rope) -> Tensor:
        """See `Attention.attention_maps`."""
        return self.attention_rows(x, rope, self._heads(x, rope)[1])

    def attention_rows(self, x: Tensor, rope: Rope, keys: Tensor) -> Tensor:
        """See `Attention.attention_rows`."""
        q, _, _ = self._heads(x, rope)
        return attention_map(q, keys, scale=self.head_dim**-0.5, mask=None)

    def _heads(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor]:
        heads = (self.num_heads, self.num_kv_heads, self.num_kv_heads)
        return split_heads(self.qkv_proj(x), rope, heads, self.head_dim)

    def reference(self, x: Tensor, rope: Rope) -> Tensor:
        """Equation 1 of the Transformer, head by head."""
        H, G, d = self.num_heads, self.num_kv_heads, self.head_dim
        w_q, w_k, w_v = torch.split(self.qkv_proj.weight, [H * d, G * d, G * d])
        future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool().to(x.device)
        outputs = []
        for h in range(H):
            g = h // (H // G)
            q = rotate((x @ w_q[h * d : (h + 1) * d].T).unsqueeze(1), rope).squeeze(1)
            k = rotate((x @ w_k[g * d : (g + 1) * d].T).unsqueeze(1), rope).squeeze(1)
            v = x @ w_v[g * d : (g + 1) * d].T
            scores = (q @ k.transpose(1, 2) / math.sqrt(d)).masked_fill(future, -math.inf)
            o = F.softmax(scores, dim=-1) @ v
            if self.head_norm is not None:
                mean_square = o.pow(2).mean(-1, keepdim=True)
                o = o / torch.sqrt(mean_square + self.head_norm.epsilon) * self.head_norm.weight
            outputs.append(o)
        return torch.cat(outputs, dim=-1) @ self.o_proj.weight.T

    @classmethod
    def parameter_count(cls, config: AttentionConfig, d_model: int) -> int:
        """(2H + 2G) d matrices' columns of d_model each, and d gains with the norm."""
        assert isinstance(config, SoftmaxConfig)
        columns = (2 * config.output_heads + 2 * config.kv_heads) * config.head_dim
        return columns * d_model + (config.head_dim if config.norm else 0)
