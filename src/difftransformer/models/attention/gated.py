"""Gated attention (github qiuzh20/gated_attention): a sigmoid gate on what the heads gather.

    O_h = sigmoid(g_h) * softmax(Q_h K_h' / sqrt(d)) V_h,    g = X W_g
    Y = concat(O_1, ..., O_H) W_O

g has one number for each head (headwise) or for each of its d dimensions (elementwise). The
authors make it extra rows of the query projection; a matrix of its own computes the same. Shapes
as in `models.attention.base`.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from difftransformer.config.base import setting
from difftransformer.config.model import AttentionConfig
from difftransformer.models.attention.base import Attention
from difftransformer.models.matrices import Linear


class GatedConfig(AttentionConfig):
    """Options of `gated`."""

    gate: Literal["headwise", "elementwise"] = setting(
        "headwise",
        meaning="One gate for each head, or one for each dimension of each head.",
        source="github qiuzh20/gated_attention, modeling_qwen3.py",
    )

    @property
    def gates(self) -> int:
        """Gates of one head."""
        return 1 if self.gate == "headwise" else self.head_dim


class GatedAttention(Attention):
    """Grouped-query softmax attention with gates; `attention_maps` are those before the gate."""

    config_class: ClassVar[type[AttentionConfig]] = GatedConfig

    def _make_parameters(self, config: AttentionConfig) -> None:
        assert isinstance(config, GatedConfig)
        self.gates = config.gates
        self.gate_proj = Linear(self.d_model, self.num_heads * self.gates)

    def output(self, context: Tensor, x: Tensor) -> Tensor:
        """See `Attention.output`: gate, and project."""
        gates = torch.sigmoid(self.gate_proj(x))
        return super().output(context * gates.view(*context.shape[:3], self.gates), x)
