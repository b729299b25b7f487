"""Softmax with a learned sink per head (gpt-oss; github huggingface/transformers gpt_oss).

    A_ij = exp(z_ij) / (exp(s_h) + sum_k exp(z_ik))        z = Q_h K_h' / sqrt(d)
    O_h = A V_h,    Y = concat(O_1, ..., O_H) W_O

With lse_i = log sum_k exp(z_ik) that is sigmoid(lse_i - s_h) softmax(z_i), so any kernel that
returns the log-sum-exp computes it. Shapes as in `models.attention.base`.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.config import AttentionConfig
from difftransformer.models.kernels.eager import logits
from difftransformer.models.rotary import Rope

_SINK_STD = 0.02
"""Standard deviation of the initial sinks, around 0 (transformers, models/gpt_oss:
initializer_range)."""


@dataclass(frozen=True, kw_only=True)
class GptOssSinkConfig(AttentionConfig):
    """Options of `gpt_oss_sink`: those of every variant, and no others."""


class SinkAttention(Attention):
    """Grouped-query attention with a learned sink logit per head in the softmax's denominator.

    The weights of the keys therefore sum to less than one.
    """

    config_class: ClassVar[type[AttentionConfig]] = GptOssSinkConfig
    saved_maps_per_head: ClassVar[float] = 2.5

    def __init__(
        self, config: GptOssSinkConfig, d_model: int, layer_index: int, backend: str
    ) -> None:
        super().__init__(config, d_model, layer_index, backend)
        self.build_projections()
        self.sinks = nn.Parameter(torch.empty(self.num_heads))

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the layer's output, [B, T, D]; arguments as in `Attention.forward`."""
        q, k, v, _ = self.project(x, rope)  # [B, H, T, d], [B, G, T, d], [B, G, T, d]
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        # [B, T, H, d] and [B, T, H]
        attn, lse = self.kernel.attention_with_lse(q, k, v, scale=self.scale, mask=mask)
        attn = attn * torch.sigmoid(lse - self.sinks).unsqueeze(-1).to(attn.dtype)
        return self.o_proj(attn.flatten(2))

    def attention_weights(self, q: Tensor, k: Tensor, extra: Tensor) -> Tensor:
        """Return the keys' weights of a softmax over all keys and the sink, [B, H, T, S]."""
        z = logits(q, k, scale=self.scale, mask=None)
        sinks = self.sinks.to(z.dtype).view(1, -1, 1, 1).expand(*z.shape[:3], 1)
        return torch.cat((z, sinks), dim=-1).softmax(dim=-1)[..., :-1]

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Draw the sink logits from a normal distribution."""
        parameter.normal_(0.0, _SINK_STD, generator=generator)
