"""Differential attention, V2 (the authors' post "Differential Transformer V2", 2026-01-20).

    A = attention(Q, K, V)                         2H query heads over G key/value heads, one call
    O_h = A_2h - sigmoid(lambda_h) A_(2h+1)        both of one group, so they share key and value
    lambda = X W_lambda                            one for each position and output head
    Y = concat(O_1, ..., O_H) W_O

No norm of heads and no gain (1 - lambda_init), unlike V1. The post's names: h is our H, h_kv our G.
Its design ablations 1 to 3 are settings of `DiffV2Config`; the fourth is a Transformer (see
`num_heads_multiplier`). Shapes as in `models.attention.base`.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from difftransformer.config.base import setting
from difftransformer.config.model import AttentionConfig
from difftransformer.models.attention.base import Attention
from difftransformer.models.kernels.eager import attention_map

POST = "Differential Transformer V2 (post)"


class DiffV2Config(AttentionConfig):
    """Options of `diff_v2`; ``num_heads`` counts differential heads, each with two queries."""

    pairing: Literal["same_group", "across_groups"] = setting(
        "same_group",
        meaning="Which attention outputs are subtracted: neighbours 2h and 2h + 1, which share key "
        "and value, or h and H + h, which do not where there is more than one group.",
        source=f"{POST}, design ablation 1",
    )
    lambda_form: Literal["sigmoid", "raw", "none"] = setting(
        "sigmoid",
        meaning="Factor of the second output: sigmoid of the projection, the projection itself, or "
        "none (one minus the other, without a projection).",
        source=f"{POST}, design ablations 2 (none) and 3 (raw)",
    )


class DifferentialAttentionV2(Attention):
    """DIFF V2; keys and values are as many as those of a Transformer with G key/value heads.

    W_lambda is the last H rows of ``qkv_proj`` and drawn like them, so that sigmoid(lambda) is 0.5
    on average at the start. Paired across groups the two maps of a head apply to different values
    and no single weight exists; `attention_maps` then is their difference, what that ablation
    leaves of a map.
    """

    config_class: ClassVar[type[AttentionConfig]] = DiffV2Config
    queries_per_head: ClassVar[int] = 2
    authors_names: ClassVar[Mapping[str, str]] = {
        **{f"{part}_proj.weight": f"{part}_proj.weight" for part in "qkvo"},
        "further_proj.weight": "lambda_proj.weight",
    }

    def _make_parameters(self, config: AttentionConfig) -> None:
        assert isinstance(config, DiffV2Config)
        self.pairing, self.lambda_form = config.pairing, config.lambda_form
        self.lambdas_follow_tokens = self.lambda_form != "none"

    def context(
        self, q: Tensor, k: Tensor, v: Tensor, further: Tensor, mask: Tensor | None
    ) -> Tensor:
        """See `Attention.context`: one call of the kernel for both maps of all heads."""
        return self._difference(super().context(q, k, v, further, mask), further)

    def weights(self, q: Tensor, k: Tensor, further: Tensor) -> Tensor:
        """See `Attention.weights`: the first map minus lambda times the second."""
        both = attention_map(q, k, scale=self.scale, mask=None)
        return self._difference(both.transpose(1, 2), further).transpose(1, 2)

    def pair(self, q: Tensor, k: Tensor, further: Tensor) -> tuple[Tensor, Tensor]:
        """See `Attention.pair`."""
        both = attention_map(q, k, scale=self.scale, mask=None)
        first, second = self._pair(both.transpose(1, 2))
        return first.transpose(1, 2), second.transpose(1, 2)

    def learned_lambdas(self, x: Tensor) -> Tensor | None:
        """See `Attention.learned_lambdas`: one for each position and head."""
        if self.lambda_form == "none":
            return None
        return self._factor(self.qkv_proj(x)[..., -self.num_heads :])

    def _factor(self, lam: Tensor) -> Tensor:
        return torch.sigmoid(lam) if self.lambda_form == "sigmoid" else lam

    def _difference(self, both: Tensor, lam: Tensor) -> Tensor:
        """[B, T, 2H, *] and X W_lambda [B, T, H] -> [B, T, H, *]."""
        first, second = self._pair(both)
        if self.lambda_form == "none":
            return first - second
        return first - self._factor(lam).unsqueeze(-1) * second

    def _pair(self, both: Tensor) -> tuple[Tensor, Tensor]:
        """[B, T, 2H, *] -> what is kept and what is subtracted, [B, T, H, *] each."""
        pairs = (-1, 2) if self.pairing == "same_group" else (2, -1)
        split = both.view(*both.shape[:2], *pairs, both.shape[-1])
        first, second = split.unbind(2 + pairs.index(2))
        return first, second

    @classmethod
    def further_rows(cls, config: AttentionConfig) -> int:
        """One lambda for each head."""
        assert isinstance(config, DiffV2Config)
        return config.output_heads if config.lambda_form != "none" else 0
