"""Ordinary heads that variants build on: queries, shared keys and values, one projection.

Shapes as in `models.attention.base`.
"""

import math
from typing import ClassVar

import torch
from torch import Tensor

from difftransformer.config.model import AttentionConfig
from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.kernels.eager import attention_map
from difftransformer.models.matrices import Linear
from difftransformer.models.rotary import Rope, rotate, split_heads


class GroupedAttention(Attention):
    """Multi-head or grouped-query heads; a variant says what they gather and what becomes of it.

    Rows of ``qkv_proj``: queries [Q, d], keys [G, d], values [G, d] and `further_rows`, with Q =
    `queries_per_head` H; query j uses key/value head j // (Q / G).
    """

    queries_per_head: ClassVar[int] = 1

    def _make_parameters(self, config: AttentionConfig) -> None:
        self.num_queries = self.queries_per_head * self.num_heads
        heads = self.num_queries + 2 * self.num_kv_heads
        self.qkv_proj = Linear(self.d_model, heads * self.head_dim + self.further_rows(config))
        self.o_proj = Linear(self.num_heads * self.head_dim, self.d_model)

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """See `Attention.forward`."""
        q, k, v, further = self._split(x, rope)
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        return self.output(self.context(q, k, v, further, mask), x)

    def context(
        self, q: Tensor, k: Tensor, v: Tensor, further: Tensor, mask: Tensor | None
    ) -> Tensor:
        """What the heads gather, [B, T, H, d].

        Args:
            q: [B, Q, T, d].
            k: [B, G, S, d].
            v: [B, G, S, d].
            further: [B, T, `further_rows`], what else was projected from the layer's input.
            mask: See `Attention.forward`.
        """
        return self.kernel.attention(q, k, v, scale=self.scale, mask=mask)

    def weights(self, q: Tensor, k: Tensor, further: Tensor) -> Tensor:
        """Rows of the maps that `context` applies to the values, [B, H, T, S], written out."""
        return attention_map(q, k, scale=self.scale, mask=None)

    def attention_rows(self, x: Tensor, rope: Rope, keys: Tensor) -> Tensor:
        """See `Attention.attention_rows`."""
        q, _, _, further = self._split(x, rope)
        return self.weights(q, keys, further)

    def heads(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, Q, T, d], keys and values [B, G, T, d]."""
        return self._split(x, rope)[:3]

    def _split(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        heads = (self.num_queries, self.num_kv_heads, self.num_kv_heads)
        return split_heads(self.qkv_proj(x), rope, heads, self.head_dim)

    def one_logits(self, x: Tensor, rope: Rope, j: int) -> Tensor:
        """For references: logits of query j alone, [B, T, T], minus infinity in the future."""
        d, T = self.head_dim, x.shape[1]
        key = self.num_queries + self._group(j)
        q, k = (
            rotate((x @ self.qkv_proj.weight[i * d : (i + 1) * d].T).unsqueeze(1), rope).squeeze(1)
            for i in (j, key)
        )
        future = torch.ones(T, T).triu(1).bool().to(x.device)
        return (q @ k.transpose(1, 2) / math.sqrt(d)).masked_fill(future, -math.inf)

    def one_value(self, x: Tensor, j: int) -> Tensor:
        """For references: the values that query j meets, [B, T, d]."""
        d = self.head_dim
        row = self.num_queries + self.num_kv_heads + self._group(j)
        return x @ self.qkv_proj.weight[row * d : (row + 1) * d].T

    def _group(self, j: int) -> int:
        return j // (self.num_queries // self.num_kv_heads)

    @classmethod
    def further_rows(cls, config: AttentionConfig) -> int:
        """Return how many numbers a variant projects from the layer's input beside its heads.

        They are rows of ``qkv_proj``, since a product of their own costs more than these few.
        """
        return 0

    @classmethod
    def parameter_count(cls, config: AttentionConfig, d_model: int) -> int:
        """Those of ``qkv_proj`` and ``o_proj``: (Q + 2G + H) d and further columns of d_model."""
        H, G = config.output_heads, config.kv_heads
        heads = cls.queries_per_head * H + 2 * G + H
        return (heads * config.head_dim + cls.further_rows(config)) * d_model

    @classmethod
    def multiplications_per_pair(cls, config: AttentionConfig) -> int:
        """Q ordinary maps."""
        return cls.queries_per_head * super().multiplications_per_pair(config)
