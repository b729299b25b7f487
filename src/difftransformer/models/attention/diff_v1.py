"""Differential attention, V1 (arXiv 2410.05258v2, equations 1 to 3).

            (Q1, Q2) = rotate(X W_Q),  (K1, K2) = rotate(X W_K),  V = X W_V      for each head
    eq. 1   O_h = (softmax(Q1 K1' / sqrt(d)) - lambda softmax(Q2 K2' / sqrt(d))) V
    eq. 2   lambda = exp(lq1 . lk1) - exp(lq2 . lk2) + lambda_init            one for a layer
    eq. 3   Y = concat(..., (1 - lambda_init) N(O_h), ...) W_O      N: RMSNorm over 2d, eps 1e-5

Shapes: B = batch, T = queries, S = keys (cached ones and T new ones), D = d_model, H = heads,
G = key/value heads, d = head_dim. Each of the H heads has two queries of d, each of the G key/value
heads two keys of d and one value of 2d.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.config import AttentionConfig, setting
from difftransformer.models.differential import LambdaInit, lambda_init_of
from difftransformer.models.gradients import full_precision
from difftransformer.models.kernels.eager import attention_map
from difftransformer.models.normalisation import RMSNorm, scaled_norm
from difftransformer.models.rotary import Rope

LAMBDA_STD = 0.1


@dataclass(frozen=True, kw_only=True)
class DiffV1Config(AttentionConfig):
    """Options of `diff_v1`; ``num_heads`` counts differential heads (two softmax maps each)."""

    lambda_init: LambdaInit = setting(
        "exponential",
        meaning="lambda at the start: `exponential` is 0.8 - 0.6 exp(-0.3 l) in the layer of "
        "0-based index l, a number is the same in all layers.",
        source="DIFF paper, section 2.1; table 6 (0.8, 0.5)",
        below=1,  # the factor (1 - lambda_init) would turn heads off, or around
    )
    lambda_fixed: float | Literal["init"] | None = setting(
        None,
        meaning="lambda as a number that is not learned, the same in all layers, or `init`: it "
        "stays at the layer's lambda_init. The factor (1 - lambda_init) stays as it is. 0: both "
        "maps are made and none is subtracted. Left out: lambda is learned.",
        source="0: ours (a control); init: arXiv 2505.16333, figures 7 and 8",
    )
    norm: bool = setting(
        True,
        meaning="RMSNorm over each head's output of 2d, one gain shared by all heads. The factor "
        "(1 - lambda_init) stays when it is off.",
        source="DIFF paper, equation 3; table 6 (-GroupNorm)",
    )
    norm_eps: float = setting(
        1e-5, meaning="Added to the mean square in that norm.", source="microsoft/unilm", gt=0
    )

    @property
    def value_dim(self) -> int:
        """Both maps of a head share one value of 2d."""
        return 2 * self.head_dim


class DifferentialAttention(Attention):
    """DIFF V1 with multi-head or grouped-query sharing, as the authors' flash files compute it.

    Rows of ``qkv_proj``: queries [H, 2, d], keys [G, 2, d], values [G, 2d], so a head's pair lies
    side by side as in the authors' code. Under GQA head h uses keys and value h // (H / G); the
    authors' naive file pairs repeated keys differently and is another function.

    The factor (1 - lambda_init) of equation 3 is a constant of the layer that matches the gradient
    flow of a Transformer's layer at the start; it is kept when `norm` is off, because the ablation
    removes the norm and nothing else.
    """

    config_class: ClassVar[type[AttentionConfig]] = DiffV1Config

    def __init__(self, config: DiffV1Config, d_model: int, index: int, backend: str) -> None:
        super().__init__(config, d_model, index, backend)
        self.num_queries, self.num_keys = 2 * self.num_heads, 2 * self.num_kv_heads
        self.make_projections()  # W_Q [D, 2H d], W_K [D, 2G d], W_V [D, G 2d], W_O [H 2d, D]
        self.make_lambda_and_norm(config)

    def make_lambda_and_norm(self, config: DiffV1Config) -> None:
        """Make the parameters of lambda in equation 2 and the norm of equation 3."""
        self.lambda_init = lambda_init_of(self, config.lambda_init)
        self.factor = 1 - self.lambda_init
        fixed = config.lambda_fixed
        self.lambda_fixed = self.lambda_init if fixed == "init" else fixed
        if self.lambda_fixed is None:
            self.make_lambda()
        self.head_norm = RMSNorm(self.value_dim, config.norm_eps) if config.norm else None

    def make_lambda(self) -> None:
        """Make the parameters of equation 2."""
        d = self.head_dim
        self.lambda_q1, self.lambda_k1 = nn.Parameter(torch.empty(d)), nn.Parameter(torch.empty(d))
        self.lambda_q2, self.lambda_k2 = nn.Parameter(torch.empty(d)), nn.Parameter(torch.empty(d))

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]; arguments as in `Attention.forward`."""
        # Project and rotate: q [B, 2H, T, d], k [B, 2G, T, d], v [B, G, T, 2d]; pairs side by side.
        q, k, v, _ = self.project(x, rope)
        if cache is not None:  # with earlier positions: k [B, 2G, S, d], v [B, G, S, 2d]
            k, v = cache.update(k, v, self.layer_index)
        # Attend: (softmax(q1 k1' / sqrt(d)) - lambda softmax(q2 k2' / sqrt(d))) v, [B, T, H, 2d].
        lam = self.current_lambda()  # equation 2
        heads = self.kernel.differential_attention(q, k, v, lam, scale=self.scale, mask=mask)
        # Norm each head times (1 - lambda_init), join the heads, [B, T, H 2d], and project to D.
        heads = scaled_norm(heads, self.head_norm, self.factor)  # equation 3
        return self.o_proj(heads.flatten(2))

    def current_lambda(self) -> Tensor:
        """Return lambda by equation 2, or the fixed one: a scalar in float32 or wider."""
        if self.lambda_fixed is not None:
            return full_precision(self.o_proj.weight.new_empty(())).fill_(self.lambda_fixed)
        first = (full_precision(self.lambda_q1) * full_precision(self.lambda_k1)).sum().exp()
        second = (full_precision(self.lambda_q2) * full_precision(self.lambda_k2)).sum().exp()
        return first - second + self.lambda_init

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Draw the lambda vectors from N(0, 0.1), as the authors do."""
        parameter.normal_(0.0, LAMBDA_STD, generator=generator)

    # For analysis.

    def learned_lambdas(self, x: Tensor) -> Tensor:
        """See `Attention.learned_lambdas`: one per layer."""
        return self.current_lambda().view(1, 1, -1)

    def component_maps(self, q: Tensor, k: Tensor, extra: Tensor) -> tuple[Tensor, Tensor]:
        """See `Attention.component_maps`."""
        first = attention_map(q[:, 0::2], k[:, 0::2], scale=self.scale, mask=None)
        return first, attention_map(q[:, 1::2], k[:, 1::2], scale=self.scale, mask=None)

    def attention_weights(self, q: Tensor, k: Tensor, extra: Tensor) -> Tensor:
        """See `Attention.attention_weights`."""
        first, second = self.component_maps(q, k, extra)
        return first - self.current_lambda() * second
