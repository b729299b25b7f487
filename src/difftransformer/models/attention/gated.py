"""Gated attention (github qiuzh20/gated_attention): a sigmoid gate on the head outputs.

    O_h = sigmoid(g_h) * softmax(Q_h K_h' / sqrt(d)) V_h,    g = X W_g
    Y = concat(O_1, ..., O_H) W_O

g has one number per head (headwise) or one for each of its d dimensions (elementwise). The authors
compute it by extra rows of the query projection; our separate matrix computes the same. Shapes as
in `models.attention.base`.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.config import AttentionConfig, setting
from difftransformer.models.linear import Linear
from difftransformer.models.rotary import Rope


@dataclass(frozen=True, kw_only=True)
class GatedConfig(AttentionConfig):
    """Options of the `gated` variant."""

    gate: Literal["headwise", "elementwise"] = setting(
        "headwise",
        meaning="One gate per head, or one per dimension of each head.",
        source="github qiuzh20/gated_attention, modeling_qwen3.py",
    )

    @property
    def gates_per_head(self) -> int:
        """Number of sigmoid gates per head."""
        return 1 if self.gate == "headwise" else self.head_dim


class GatedAttention(Attention):
    """Grouped-query softmax attention with sigmoid gates on the head outputs.

    `attention_maps` returns the softmax maps, before the gates.
    """

    config_class: ClassVar[type[AttentionConfig]] = GatedConfig

    def __init__(self, config: GatedConfig, d_model: int, layer_index: int, backend: str) -> None:
        super().__init__(config, d_model, layer_index, backend)
        self.build_projections()
        self.gates_per_head = config.gates_per_head
        self.gate_proj = Linear(d_model, self.num_heads * self.gates_per_head)

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the layer's output, [B, T, D]; arguments as in `Attention.forward`."""
        q, k, v, _ = self.project(x, rope)  # [B, H, T, d], [B, G, T, d], [B, G, T, d]
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        attn = self.kernel.attention(q, k, v, scale=self.scale, mask=mask)  # [B, T, H, d]
        gates = torch.sigmoid(self.gate_proj(x))
        attn = attn * gates.view(*attn.shape[:3], self.gates_per_head)
        return self.o_proj(attn.flatten(2))
