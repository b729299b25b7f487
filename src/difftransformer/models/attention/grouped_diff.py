"""Grouped differential attention (arXiv 2510.06949; Motif-2-12.7B), an interpretation.

    O_h = (softmax(Q1_h K1_g' / sqrt(d)) - lambda softmax(Q2_g K2_g' / sqrt(d))) V_g
    Y = concat(..., (1 - lambda_init) N(O_h), ...) W_O        g = h // (H / G), the group of head h

The H / G signal heads of a group share one noise head, as they share keys and values: the ratio of
signal to noise is 2:1 with two output heads to a key/value head, and 1:1 is V1. Lambda (one for a
layer), its start and N are V1's, equations 2 and 3.

Interpretation: of the paper the summary could be read, which has the unequal numbers and the shared
noise maps alone; the layer is what the authors' code computes for their models (github
MotifTechnologies/vllm at 477e4d7, models/motif.py). Ours are one noise head to each key/value head,
as Motif-2-12.7B has it (32 signal and 8 noise heads over 8 values; the code lets key/value heads be
fewer), and a lambda_init that counts layers from 0 as V1's does: theirs is a layer behind, with
-0.01 in the first. Shapes as in `models.attention.base`.
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
    """Options of `grouped_diff`, which are V1's; ``num_heads`` counts the signal heads.

    Signal heads for each noise head are ``heads_per_kv_head`` times ``num_heads_multiplier``.
    """


class GroupedDifferentialAttention(DifferentialAttention):
    """V1 whose second maps are as many as the key/value heads, two calls of the kernel.

    Rows of ``qkv_proj``: queries [G, H / G + 1, d], the noise head of a group behind its signal
    heads; keys [G, 2, d] and values [G, 2d] as in V1.
    """

    config_class: ClassVar[type[AttentionConfig]] = GroupedDiffConfig
    saved_maps_per_head: ClassVar[float] = 2.5

    def __init__(self, config: GroupedDiffConfig, d_model: int, index: int, backend: str) -> None:
        Attention.__init__(self, config, d_model, index, backend)
        H, G = self.num_heads, self.num_kv_heads
        self.num_q_heads, self.num_k_heads, self.ratio = H + G, 2 * G, H // G
        self.build_projections()
        self.build_lambda_and_norm(config)

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]; arguments as in `Attention.forward`."""
        q, k, v, _ = self.project(x, rope)  # [B, H + G, T, d], [B, 2G, T, d], [B, G, T, 2d]
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        if self.backend == "eager":  # the difference of maps, as in the equation
            first, second = self._maps(q, k, mask)
            heads = apply_attention(first - self.lambda_full() * second, v)
        else:
            signal, noise = self._signal_and_noise(q)
            first = self.kernel.attention(signal, k[:, 0::2], v, scale=self.scale, mask=mask)
            second = self.kernel.attention(noise, k[:, 1::2], v, scale=self.scale, mask=mask)
            second = second.repeat_interleave(self.ratio, dim=2)  # [B, T, G, 2d] -> [B, T, H, 2d]
            heads = first - self.lambda_full() * second
        heads = norm_and_scale(heads, self.head_norm, self.head_scale)
        return self.o_proj(heads.flatten(2))

    def _signal_and_noise(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Queries [B, H + G, T, d] -> [B, H, T, d] and [B, G, T, d]."""
        groups = q.view(len(q), self.num_kv_heads, self.ratio + 1, *q.shape[2:])
        return groups[:, :, : self.ratio].flatten(1, 2), groups[:, :, self.ratio]

    def _maps(self, q: Tensor, k: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the positive and the subtracted map of each head, [B, H, T, S] each."""
        signal, noise = self._signal_and_noise(q)
        first = attention_map(signal, k[:, 0::2], scale=self.scale, mask=mask)
        second = attention_map(noise, k[:, 1::2], scale=self.scale, mask=mask)
        return first, second.repeat_interleave(self.ratio, dim=1)

    def component_maps(self, q: Tensor, k: Tensor, extra: Tensor) -> tuple[Tensor, Tensor]:
        """See `Attention.component_maps`: heads of a group share the subtracted map."""
        return self._maps(q, k, None)
