"""Differential attention, V2 (the authors' post "Differential Transformer V2", 2026-01-20).

    A = attention(Q, K, V)                         2H query heads over G key/value heads, one call
    O_h = A_2h - sigmoid(lambda_h) A_(2h+1)        both of one group, so they share key and value
    lambda = X W_lambda                            one per position and output head
    Y = concat(O_1, ..., O_H) W_O

No norm of heads and no factor (1 - lambda_init), unlike V1. The post's names: h is our H, h_kv our
G. Its design ablations 1 to 3 are settings of `DiffV2Config`; the fourth is a Transformer (see
`num_heads_multiplier`). Shapes as in `models.attention.base`.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.config import AttentionConfig, setting
from difftransformer.models.kernels.eager import attention_map
from difftransformer.models.rotary import Rope

POST = "Differential Transformer V2 (post)"


@dataclass(frozen=True, kw_only=True)
class DiffV2Config(AttentionConfig):
    """Options of `diff_v2`; ``num_heads`` counts differential heads, each with two queries."""

    pairing: Literal["same_group", "across_groups"] = setting(
        "same_group",
        meaning="Which attention outputs are subtracted: neighbors 2h and 2h + 1, which share key "
        "and value, or h and H + h, which do not if there is more than one group.",
        source=f"{POST}, design ablation 1",
    )
    lambda_form: Literal["sigmoid", "raw", "none"] = setting(
        "sigmoid",
        meaning="Factor of the second output: sigmoid of the projection, the projection itself, or "
        "none (the plain difference, without a projection).",
        source=f"{POST}, design ablations 2 (none) and 3 (raw)",
    )


class DifferentialAttentionV2(Attention):
    """Differential attention V2, with the keys and values of a Transformer of G key/value heads.

    W_lambda is the last H rows of ``qkv_proj`` and initialized like them, so sigmoid(lambda) starts
    at 0.5 on average. Paired across groups the two maps of a head apply to different values, so no
    single attention map exists; `attention_maps` then returns the difference of the two.
    """

    config_class: ClassVar[type[AttentionConfig]] = DiffV2Config
    value_matmuls_per_head: ClassVar[int] = 2

    def __init__(self, config: DiffV2Config, d_model: int, layer_index: int, backend: str) -> None:
        super().__init__(config, d_model, layer_index, backend)
        self.num_q_heads = 2 * self.num_heads
        self.pairing, self.lambda_form = config.pairing, config.lambda_form
        self.lambda_depends_on_input = self.lambda_form != "none"
        # W_Q [D, 2H d], W_K and W_V [D, G d], W_lambda [D, H], W_O [H d, D]
        self.build_projections(self.num_heads if self.lambda_depends_on_input else 0)

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the layer's output, [B, T, D]; arguments as in `Attention.forward`."""
        # q [B, 2H, T, d], k [B, G, T, d], v [B, G, T, d], lam = X W_lambda [B, T, H]
        q, k, v, lam = self.project(x, rope)
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        attn = self.kernel.attention(q, k, v, scale=self.scale, mask=mask)  # A: [B, T, 2H, d]
        attn1, attn2 = self._split_pairs(attn, dim=2)  # [B, T, H, d] each
        attn = attn1 - self._lambda(lam) * attn2
        return self.o_proj(attn.flatten(2))

    def _split_pairs(self, x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """Split a dimension of 2H into the positive and the subtracted heads, H each."""
        if self.pairing == "across_groups":
            positive, subtracted = x.chunk(2, dim)
        else:
            positive, subtracted = torch.unflatten(x, dim, (-1, 2)).unbind(dim + 1)
        return positive, subtracted

    def _lambda(self, lam: Tensor) -> Tensor:
        """Return the factor of the subtracted heads [B, T, H, 1] from X W_lambda [B, T, H]."""
        if self.lambda_form == "none":
            return lam.new_ones(1, 1, 1, 1)
        return (torch.sigmoid(lam) if self.lambda_form == "sigmoid" else lam).unsqueeze(-1)

    # For analysis.

    def lambda_per_head(self, x: Tensor) -> Tensor | None:
        """Return lambda per position and head, [B, T, H]; None if `lambda_form` is none."""
        if self.lambda_form == "none":
            return None
        return self._lambda(self.qkv_proj(x)[..., -self.num_heads :]).squeeze(-1)

    def component_maps(self, q: Tensor, k: Tensor, extra: Tensor) -> tuple[Tensor, Tensor]:
        """Return the softmax maps of the positive and the subtracted heads, [B, H, T, S] each."""
        return self._split_pairs(attention_map(q, k, scale=self.scale, mask=None), dim=1)

    def attention_weights(self, q: Tensor, k: Tensor, extra: Tensor) -> Tensor:
        """Return the first map minus lambda times the second, [B, H, T, S].

        ``extra`` is X W_lambda, [B, T, H].
        """
        map1, map2 = self.component_maps(q, k, extra)
        return map1 - self._lambda(extra).transpose(1, 2) * map2
