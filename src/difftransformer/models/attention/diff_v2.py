"""Differential attention, V2 (the authors' post "Differential Transformer V2", 2026-01-20).

    A = attention(Q, K, V)                         2H query heads over G key/value heads, one call
    O_h = A_2h - sigmoid(lambda_h) A_(2h+1)        both of one group, so they share key and value
    lambda = X W_lambda                            one for each position and output head
    Y = concat(O_1, ..., O_H) W_O

No norm of heads and no gain (1 - lambda_init), unlike V1. The post's names: h is our H, h_kv our G.
Its design ablations 1 to 3 are settings of `DiffV2Config`; the fourth is a Transformer (see
`num_heads_multiplier`). Shapes as in `models.attention.base`.
"""

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from difftransformer.config.base import setting
from difftransformer.config.model import AttentionConfig
from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.kernels.eager import attention_map
from difftransformer.models.matrices import Linear
from difftransformer.models.rotary import Rope, rotate, split_heads

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

    Rows of ``qkv_proj``: queries [2H, d], keys [G, d], values [G, d]; query head j uses key/value
    head j // (2H / G). ``lambda_proj`` is drawn like every matrix, so that sigmoid(lambda) is 0.5
    on average at the start.
    """

    config_class: ClassVar[type[AttentionConfig]] = DiffV2Config

    def __init__(
        self, config: AttentionConfig, d_model: int, layer_index: int, backend: str
    ) -> None:
        super().__init__(config, d_model, layer_index, backend)
        assert isinstance(config, DiffV2Config)
        self.num_heads, self.num_kv_heads = config.output_heads, config.kv_heads
        self.head_dim = d = config.head_dim
        self.pairing, self.lambda_form = config.pairing, config.lambda_form
        self.qkv_proj = Linear(d_model, 2 * (self.num_heads + self.num_kv_heads) * d)
        self.o_proj = Linear(self.num_heads * d, d_model)
        self.lambda_proj: Linear | None = None
        if config.lambda_form != "none":
            self.lambda_proj = Linear(d_model, self.num_heads)

    def current_lambda(self, x: Tensor) -> Tensor | None:
        """Factor of the second output, [B, T, H]; None stands for one."""
        if self.lambda_proj is None:
            return None
        lam: Tensor = self.lambda_proj(x)
        return torch.sigmoid(lam) if self.lambda_form == "sigmoid" else lam

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """See `Attention.forward`."""
        q, k, v = self._heads(x, rope)
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        both = self.kernel.attention(q, k, v, scale=self.head_dim**-0.5, mask=mask)
        return self.output(self._difference(both, self.current_lambda(x)), x)

    def attention_maps(self, x: Tensor, rope: Rope) -> Tensor:
        """See `Attention.attention_maps`: the first map minus lambda times the second.

        Paired across groups the two maps apply to different values, and no single weight exists;
        their difference is returned nevertheless, as what the authors' ablation leaves of a map.
        """
        return self.attention_rows(x, rope, self._heads(x, rope)[1])

    def attention_rows(self, x: Tensor, rope: Rope, keys: Tensor) -> Tensor:
        """See `Attention.attention_rows`."""
        q, _, _ = self._heads(x, rope)
        both = attention_map(q, keys, scale=self.head_dim**-0.5, mask=None)
        return self._difference(both.transpose(1, 2), self.current_lambda(x)).transpose(1, 2)

    def _heads(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor]:
        heads = (2 * self.num_heads, self.num_kv_heads, self.num_kv_heads)
        return split_heads(self.qkv_proj(x), rope, heads, self.head_dim)

    def _difference(self, both: Tensor, lam: Tensor | None) -> Tensor:
        """[B, T, 2H, *] and factors [B, T, H] -> [B, T, H, *]."""
        if self.pairing == "same_group":
            first, second = both[:, :, 0::2], both[:, :, 1::2]
        else:
            first, second = both[:, :, : self.num_heads], both[:, :, self.num_heads :]
        return first - second if lam is None else first - lam.unsqueeze(-1) * second

    def reference(self, x: Tensor, rope: Rope) -> Tensor:
        """Write the formula down, head by head."""
        H, G, d = self.num_heads, self.num_kv_heads, self.head_dim
        w_q, w_k, w_v = torch.split(self.qkv_proj.weight, [2 * H * d, G * d, G * d])
        future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool().to(x.device)

        def attend(j: int) -> Tensor:
            g = j // (2 * H // G)
            rows = slice(g * d, (g + 1) * d)
            q = rotate((x @ w_q[j * d : (j + 1) * d].T).unsqueeze(1), rope).squeeze(1)
            k = rotate((x @ w_k[rows].T).unsqueeze(1), rope).squeeze(1)
            scores = (q @ k.transpose(1, 2) / math.sqrt(d)).masked_fill(future, -math.inf)
            return F.softmax(scores, dim=-1) @ (x @ w_v[rows].T)

        outputs = []
        for h in range(H):
            one, other = (2 * h, 2 * h + 1) if self.pairing == "same_group" else (h, H + h)
            lam = torch.ones_like(x[..., :1])
            if self.lambda_proj is not None:
                lam = x @ self.lambda_proj.weight[h : h + 1].T
            if self.lambda_form == "sigmoid":
                lam = 1 / (1 + torch.exp(-lam))
            outputs.append(attend(one) - lam * attend(other))
        return torch.cat(outputs, dim=-1) @ self.o_proj.weight.T

    @classmethod
    def parameter_count(cls, config: AttentionConfig, d_model: int) -> int:
        """(3H + 2G) d columns of d_model, and H more for lambda."""
        assert isinstance(config, DiffV2Config)
        H, G = config.output_heads, config.kv_heads
        columns = (3 * H + 2 * G) * config.head_dim + (H if config.lambda_form != "none" else 0)
        return columns * d_model

    @classmethod
    def multiplications_per_pair(cls, config: AttentionConfig) -> int:
        """2H ordinary heads."""
        return 2 * config.output_heads * 2 * config.head_dim
