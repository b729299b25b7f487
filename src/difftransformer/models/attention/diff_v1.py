"""Differential attention, V1 (arXiv 2410.05258v2, equations 1 to 3).

    eq. 1   O_h = (softmax(Q1 K1' / sqrt(d)) - lambda softmax(Q2 K2' / sqrt(d))) V
    eq. 2   lambda = exp(lq1 . lk1) - exp(lq2 . lk2) + lambda_init            one for a layer
    eq. 3   Y = concat(..., (1 - lambda_init) N(O_h), ...) W_O      N: RMSNorm over 2d, eps 1e-5

Shapes as in `models.attention.base`; each of the H heads has two queries of d, each of the G
key/value heads two keys of d and one value of 2d.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from difftransformer.config.base import setting
from difftransformer.config.model import AttentionConfig
from difftransformer.errors import ConfigError
from difftransformer.models.attention.base import Attention
from difftransformer.models.differential import LambdaInit, lambda_init_of
from difftransformer.models.gradients import full_precision
from difftransformer.models.kernels.eager import attention_map, differential_map
from difftransformer.models.normalisation import RMSNorm

LAMBDA_STD = 0.1


class DiffV1Config(AttentionConfig):
    """Options of `diff_v1`; ``num_heads`` counts differential heads (two softmax maps each)."""

    lambda_init: LambdaInit = setting(
        "exponential",
        meaning="lambda at the start: `exponential` is 0.8 - 0.6 exp(-0.3 l) in the layer of "
        "0-based index l, a number is the same in all layers.",
        source="DIFF paper, section 2.1; table 6 (0.8, 0.5)",
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
    queries_per_head: ClassVar[int] = 2
    keys_per_group: ClassVar[int] = 2
    authors_names: ClassVar[Mapping[str, str]] = {
        "q_proj.weight": "q_proj.weight",
        "k_proj.weight": "k_proj.weight",
        "v_proj.weight": "v_proj.weight",
        "o_proj.weight": "out_proj.weight",
        "head_norm.weight": "subln.weight",
        **{name: name for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")},
    }

    def _make_parameters(self, config: AttentionConfig) -> None:
        assert isinstance(config, DiffV1Config)
        self.lambda_init = lambda_init_of(self, config.lambda_init)
        self.factor = 1 - self.lambda_init
        fixed = config.lambda_fixed
        self.lambda_fixed = self.lambda_init if fixed == "init" else fixed
        if self.lambda_fixed is None:
            self._make_lambdas()
        self.head_norm = RMSNorm(self.value_dim, config.norm_eps) if config.norm else None

    def _make_lambdas(self) -> None:
        d = self.head_dim
        self.lambda_q1, self.lambda_k1 = nn.Parameter(torch.empty(d)), nn.Parameter(torch.empty(d))
        self.lambda_q2, self.lambda_k2 = nn.Parameter(torch.empty(d)), nn.Parameter(torch.empty(d))

    def current_lambda(self) -> Tensor:
        """Equation 2, or the fixed number, in float32 at least whatever the precision of the rest.

        A scalar, or [H, 1, 1] in a variant whose heads have one each.
        """
        if self.lambda_fixed is not None:
            return full_precision(self.o_proj.weight.new_empty(())).fill_(self.lambda_fixed)
        return self._learned_lambda()

    def _learned_lambda(self) -> Tensor:
        first = (full_precision(self.lambda_q1) * full_precision(self.lambda_k1)).sum().exp()
        second = (full_precision(self.lambda_q2) * full_precision(self.lambda_k2)).sum().exp()
        return first - second + self.lambda_init

    def learned_lambdas(self, x: Tensor) -> Tensor:
        """See `Attention.learned_lambdas`: one for the layer."""
        return self.current_lambda().view(1, 1, -1)

    def context(
        self, q: Tensor, k: Tensor, v: Tensor, further: Tensor, mask: Tensor | None
    ) -> Tensor:
        """See `Attention.context`: equation 1."""
        lam = self.current_lambda()
        if lam.ndim:
            return self._two_calls(q, k, v, lam, mask)
        return self.kernel.differential_attention(q, k, v, lam, scale=self.scale, mask=mask)

    def _two_calls(
        self, q: Tensor, k: Tensor, v: Tensor, lam: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Equation 1 with a lambda for each head, which the fused operation does not take."""
        if lam.shape != (self.num_heads, 1, 1):
            raise ConfigError(
                f"{type(self).__name__}: lambda has shape {[*lam.shape]}; it is one number, or one "
                f"for each head as [{self.num_heads}, 1, 1]"
            )
        first, second = (
            self.kernel.attention(q[:, i::2], k[:, i::2], v, scale=self.scale, mask=mask)
            for i in (0, 1)
        )
        return first - lam.view(-1, 1).to(first.dtype) * second

    def weights(self, q: Tensor, k: Tensor, further: Tensor) -> Tensor:
        """See `Attention.weights`."""
        return differential_map(q, k, self.current_lambda(), scale=self.scale, mask=None)

    def pair(self, q: Tensor, k: Tensor, further: Tensor) -> tuple[Tensor, Tensor]:
        """See `Attention.pair`."""
        k = k[:, : self.num_keys]
        first = attention_map(q[:, 0::2], k[:, 0::2], scale=self.scale, mask=None)
        return first, attention_map(q[:, 1::2], k[:, 1::2], scale=self.scale, mask=None)

    def output(self, context: Tensor, x: Tensor) -> Tensor:
        """See `Attention.output`: equation 3."""
        norm, factor = self.head_norm, self.factor
        return super().output(context * factor if norm is None else norm(context, factor), x)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Draw the lambda vectors from N(0, 0.1), as the authors do."""
        parameter.normal_(0.0, LAMBDA_STD, generator=generator)

    @classmethod
    def multiplications_per_pair(cls, config: AttentionConfig) -> int:
        """Two logits of d, and their difference once with the value of 2d, in each head."""
        return config.output_heads * (2 * config.head_dim + config.value_dim)
