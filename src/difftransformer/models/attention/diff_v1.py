"""Differential attention, V1 (arXiv 2410.05258v2, equations 1 to 3).

            (Q1, Q2) = RoPE(X W_Q),  (K1, K2) = RoPE(X W_K),  V = X W_V
    eq. 1   O_h = (softmax(Q1 K1^T / sqrt(d)) - lambda softmax(Q2 K2^T / sqrt(d))) V   for head h
    eq. 2   lambda = exp(lambda_q1 . lambda_k1) - exp(lambda_q2 . lambda_k2) + lambda_init
    eq. 3   Y = concat((1 - lambda_init) RMSNorm(O_h) over h) W_O

The softmax is causal. lambda is a scalar per layer, shared by its heads. RMSNorm is over the 2d
numbers of a head's output, with one weight [2d] per layer. With fewer key/value heads than heads,
head h uses K1, K2 and V of key/value head h // (H / G).

Shapes: B = batch, T = tokens of X, S = tokens with cached ones, D = d_model, H = heads,
G = key/value heads, d = head_dim. Each of the H heads has two query vectors of size d, each of the
G key/value heads two key vectors of size d and one value vector of size 2d.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.autograd import at_least_fp32
from difftransformer.models.config import AttentionConfig, setting
from difftransformer.models.differential import LambdaInit, lambda_init_of
from difftransformer.models.kernels.eager import attention_map
from difftransformer.models.normalization import RMSNorm, norm_and_scale
from difftransformer.models.rotary import Rope

LAMBDA_STD = 0.1


@dataclass(frozen=True, kw_only=True)
class DiffV1Config(AttentionConfig):
    """Options of `diff_v1`; ``num_heads`` counts differential heads (two softmax maps each)."""

    lambda_init: LambdaInit = setting(
        "exponential",
        meaning="lambda_init of equations 2 and 3: `exponential` is 0.8 - 0.6 exp(-0.3 l) in the "
        "layer of 0-based index l, a number is the same in all layers.",
        source="DIFF paper, section 2.1; table 6 (0.8, 0.5)",
        below=1,  # at 1 the factor (1 - lambda_init) is 0, above it is negative
    )
    lambda_fixed: float | Literal["init"] | None = setting(
        None,
        meaning="A fixed lambda in place of the learned one, the same in all layers, or `init` for "
        "the layer's lambda_init. The factor (1 - lambda_init) does not change. 0: no subtraction; "
        "both maps are computed. Left out: lambda is learned.",
        source="0: a control that the papers do not have; init: arXiv 2505.16333, figures 7 and 8",
    )
    norm: bool = setting(
        True,
        meaning="RMSNorm over each head's output of 2d, with one weight shared by all heads. The "
        "factor (1 - lambda_init) is applied without it, too.",
        source="DIFF paper, equation 3; table 6 (-GroupNorm)",
    )
    norm_eps: float = setting(
        1e-5, meaning="Added to the mean square in that norm.", source="microsoft/unilm", gt=0
    )

    @property
    def value_dim(self) -> int:
        """Width of a head's values, 2d: a head's two maps share a value of two head widths."""
        return 2 * self.head_dim


class DifferentialAttention(Attention):
    """DIFF V1 with multi-head or grouped-query attention, equal to unilm's flash-attn files.

    The fused weight ``qkv_proj`` has rows of queries [H, 2, d], keys [G, 2, d] and values [G, 2d]:
    the two queries of a head are next to each other, as in unilm. unilm's file without flash-attn
    (`multihead_diffattn.py`) pairs repeated keys otherwise and computes another function under GQA.

    The factor (1 - lambda_init) is a constant. It makes the gradients at the start of training like
    those of a Transformer. It is applied without `norm`, too: that ablation removes only the norm.
    """

    config_class: ClassVar[type[AttentionConfig]] = DiffV1Config

    def __init__(self, config: DiffV1Config, d_model: int, layer_index: int, backend: str) -> None:
        super().__init__(config, d_model, layer_index, backend)
        self.num_q_heads, self.num_k_heads = 2 * self.num_heads, 2 * self.num_kv_heads
        self.build_projections()  # W_Q [D, 2H d], W_K [D, 2G d], W_V [D, G 2d], W_O [H 2d, D]
        self.build_lambda_and_norm(config)

    def build_lambda_and_norm(self, config: DiffV1Config) -> None:
        """Create the parameters of lambda (equation 2) and the per-head RMSNorm (equation 3)."""
        self.lambda_init = lambda_init_of(self, config.lambda_init)
        self.head_scale = 1 - self.lambda_init
        fixed = config.lambda_fixed
        self.lambda_fixed = self.lambda_init if fixed == "init" else fixed
        if self.lambda_fixed is None:
            self.build_lambda()
        self.head_norm = RMSNorm(self.value_dim, config.norm_eps) if config.norm else None

    def build_lambda(self) -> None:
        """Create the lambda vectors of equation 2: lambda_q1, lambda_k1, lambda_q2, lambda_k2."""
        d = self.head_dim
        self.lambda_q1, self.lambda_k1 = nn.Parameter(torch.empty(d)), nn.Parameter(torch.empty(d))
        self.lambda_q2, self.lambda_k2 = nn.Parameter(torch.empty(d)), nn.Parameter(torch.empty(d))

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the layer's output, [B, T, D]; arguments as in `Attention.forward`."""
        # Project and apply RoPE: q [B, 2H, T, d], k [B, 2G, T, d], v [B, G, T, 2d]. Q1 and K1 are
        # the even heads of q and k, Q2 and K2 the odd ones.
        q, k, v, _ = self.project(x, rope)
        if cache is not None:  # with earlier tokens: k [B, 2G, S, d], v [B, G, S, 2d]
            k, v = cache.update(k, v, self.layer_index)
        # Equation 1, [B, T, H, 2d]; scale is 1 / sqrt(d).
        lam = self.lambda_full()  # equation 2
        attn = self.kernel.differential_attention(q, k, v, lam, scale=self.scale, mask=mask)
        # Equation 3: normalize each head, times (1 - lambda_init); concatenate; project to D.
        attn = norm_and_scale(attn, self.head_norm, self.head_scale)
        return self.o_proj(attn.flatten(2))

    def lambda_full(self) -> Tensor:
        """Return lambda, learned (equation 2) or fixed: a scalar in float32 or wider."""
        if self.lambda_fixed is not None:
            return at_least_fp32(self.o_proj.weight.new_empty(())).fill_(self.lambda_fixed)
        lambda_1 = (at_least_fp32(self.lambda_q1) * at_least_fp32(self.lambda_k1)).sum().exp()
        lambda_2 = (at_least_fp32(self.lambda_q2) * at_least_fp32(self.lambda_k2)).sum().exp()
        return lambda_1 - lambda_2 + self.lambda_init

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Draw the lambda vectors from a normal distribution of std 0.1, as unilm does."""
        parameter.normal_(0.0, LAMBDA_STD, generator=generator)

    # For analysis.

    def lambda_per_head(self, x: Tensor) -> Tensor:
        """Return lambda, learned or fixed, as [1, 1, 1], since all tokens and heads share it."""
        return self.lambda_full().view(1, 1, -1)

    def component_maps(self, q: Tensor, k: Tensor, extra: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two causal softmax maps of equation 1, [B, H, T, S] each."""
        map1 = attention_map(q[:, 0::2], k[:, 0::2], scale=self.scale, mask=None)
        map2 = attention_map(q[:, 1::2], k[:, 1::2], scale=self.scale, mask=None)
        return map1, map2

    def attention_weights(self, q: Tensor, k: Tensor, extra: Tensor) -> Tensor:
        """Return the first map minus lambda times the second, [B, H, T, S]."""
        map1, map2 = self.component_maps(q, k, extra)
        return map1 - self.lambda_full() * map2
