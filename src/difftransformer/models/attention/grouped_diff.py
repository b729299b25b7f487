"""Grouped differential attention (arXiv 2510.06949; Motif-2-12.7B).

    O_h = (softmax(Q1_h K1_g' / sqrt(d)) - lambda softmax(Q2_g K2_g' / sqrt(d))) V_g
    Y = concat(..., (1 - lambda_init) N(O_h), ...) W_O        g = h // (H / G), the group of head h

The H / G signal heads of a group share one noise head, as they share keys and values. The ratio of
signal to noise heads is 2:1 with two output heads per key/value head; 1:1 is V1. Lambda (one per
layer), its initial value and the norm N are V1's, equations 2 and 3.

Deviation from the paper: only its summary was available (unequal head counts and shared noise
maps), so the layer follows the authors' code for their models (github MotifTechnologies/vllm at
477e4d7, models/motif.py). Ours has one noise head per key/value head, as Motif-2-12.7B (32 signal
and 8 noise heads over 8 values; the code allows fewer key/value heads), and a lambda_init that
counts layers from 0 as V1's does: theirs is one layer behind, with -0.01 in the first layer. Shapes
as in `models.attention.base`.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.attention.diff_v1 import DifferentialAttention, DiffV1Config
from difftransformer.models.config import AttentionConfig
from difftransformer.models.kernels.eager import apply_attention, attention_map
from difftransformer.models.normalization import norm_and_scale
from difftransformer.models.rotary import Rope


@dataclass(frozen=True, kw_only=True)
class GroupedDiffConfig(DiffV1Config):
    """Options of `grouped_diff`, the same as V1's; ``num_heads`` counts the signal heads.

    There are ``heads_per_kv_head`` times ``num_heads_multiplier`` signal heads per noise head.
    """


class GroupedDifferentialAttention(DifferentialAttention):
    """DIFF V1 whose heads of a group share one subtracted (noise) map per key/value head.

    It calls the kernel twice, for the signal heads and for the noise heads.

    Rows of ``qkv_proj``: queries [G, H / G + 1, d], the signal heads of a group followed by its
    noise head; keys [G, 2, d] and values [G, 2d] as in V1.
    """

    config_class: ClassVar[type[AttentionConfig]] = GroupedDiffConfig
    saved_maps_per_head: ClassVar[float] = 2.5

    def __init__(
        self, config: GroupedDiffConfig, d_model: int, layer_index: int, backend: str
    ) -> None:
        Attention.__init__(self, config, d_model, layer_index, backend)
        H, G = self.num_heads, self.num_kv_heads
        self.num_q_heads, self.num_k_heads, self.heads_per_group = H + G, 2 * G, H // G
        self.build_projections()
        self.build_lambda_and_norm(config)

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the layer's output, [B, T, D]; arguments as in `Attention.forward`."""
        q, k, v, _ = self.project(x, rope)  # [B, H + G, T, d], [B, 2G, T, d], [B, G, T, 2d]
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        if self.backend == "eager":  # the difference of maps, as in the equation
            map1, map2 = self._maps(q, k, mask)
            attn = apply_attention(map1 - self.lambda_full() * map2, v)
        else:
            signal, noise = self._signal_and_noise(q)
            attn1 = self.kernel.attention(signal, k[:, 0::2], v, scale=self.scale, mask=mask)
            attn2 = self.kernel.attention(noise, k[:, 1::2], v, scale=self.scale, mask=mask)
            attn2 = attn2.repeat_interleave(self.heads_per_group, dim=2)  # to [B, T, H, 2d]
            attn = attn1 - self.lambda_full() * attn2
        attn = norm_and_scale(attn, self.head_norm, self.head_scale)
        return self.o_proj(attn.flatten(2))

    def _signal_and_noise(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Split queries [B, H + G, T, d] into signal [B, H, T, d] and noise [B, G, T, d]."""
        groups = q.view(len(q), self.num_kv_heads, self.heads_per_group + 1, *q.shape[2:])
        return groups[:, :, :-1].flatten(1, 2), groups[:, :, -1]

    def _maps(self, q: Tensor, k: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the positive and the subtracted map of each head, [B, H, T, S] each."""
        signal, noise = self._signal_and_noise(q)
        map1 = attention_map(signal, k[:, 0::2], scale=self.scale, mask=mask)
        map2 = attention_map(noise, k[:, 1::2], scale=self.scale, mask=mask)
        return map1, map2.repeat_interleave(self.heads_per_group, dim=1)

    def component_maps(self, q: Tensor, k: Tensor, extra: Tensor) -> tuple[Tensor, Tensor]:
        """Return the signal and the noise map of each head, [B, H, T, S] each.

        The heads of a group have the same noise map.
        """
        return self._maps(q, k, None)
