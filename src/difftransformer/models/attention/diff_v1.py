"""Differential attention, V1 (arXiv 2410.05258v2, equations 1 to 3).

    eq. 1   O_h = (softmax(Q1 K1' / sqrt(d)) - lambda softmax(Q2 K2' / sqrt(d))) V
    eq. 2   lambda = exp(lq1 . lk1) - exp(lq2 . lk2) + lambda_init            one for a layer
    eq. 3   Y = concat(..., (1 - lambda_init) N(O_h), ...) W_O      N: RMSNorm over 2d, eps 1e-5

Shapes as in `models.attention.base`; each of the H heads has two queries of d, each of the G
key/value heads two keys of d and one value of 2d.
"""

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from difftransformer.config.base import setting
from difftransformer.config.model import AttentionConfig
from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.kernels.eager import differential_map
from difftransformer.models.matrices import Linear
from difftransformer.models.normalisation import RMSNorm
from difftransformer.models.rotary import Rope, rotate, split_heads

LAMBDA_STD = 0.1


class DiffV1Config(AttentionConfig):
    """Options of `diff_v1`; ``num_heads`` counts differential heads (two softmax maps each)."""

    lambda_init: Literal["exponential"] | float = setting(
        "exponential",
        meaning="lambda at the start: `exponential` is 0.8 - 0.6 exp(-0.3 l) in the layer of "
        "0-based index l, a number is the same in all layers.",
        source="DIFF paper, section 2.1; table 6 (0.8, 0.5)",
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


def initial_lambda(lambda_init: float | str, layer_index: int) -> float:
    """lambda_init of a layer (0-based index)."""
    if lambda_init == "exponential":
        return 0.8 - 0.6 * math.exp(-0.3 * layer_index)
    return float(lambda_init)


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

    def _make_parameters(self, config: AttentionConfig) -> None:
        assert isinstance(config, DiffV1Config)
        d = self.head_dim
        self.lambda_init = initial_lambda(config.lambda_init, self.layer_index)
        self._make_projections(config)
        self.o_proj = Linear(self.num_heads * 2 * d, self.d_model)
        self._make_lambdas()
        self.head_norm = RMSNorm(2 * d, config.norm_eps) if config.norm else None

    def _make_lambdas(self) -> None:
        d = self.head_dim
        self.lambda_q1, self.lambda_k1 = nn.Parameter(torch.empty(d)), nn.Parameter(torch.empty(d))
        self.lambda_q2, self.lambda_k2 = nn.Parameter(torch.empty(d)), nn.Parameter(torch.empty(d))

    def _make_projections(self, config: AttentionConfig) -> None:
        """Make what `_project` applies."""
        rows = (2 * self.num_heads + 4 * self.num_kv_heads) * self.head_dim
        self.qkv_proj = Linear(self.d_model, rows)

    def _project(self, x: Tensor) -> Tensor:
        """Queries [H, 2, d], keys [G, 2, d] and values [G, 2d] of each position, side by side."""
        out: Tensor = self.qkv_proj(x)
        return out

    def current_lambda(self) -> Tensor:
        """Equation 2, a float32 scalar whatever the precision of the rest."""
        first = (self.lambda_q1.float() * self.lambda_k1.float()).sum().exp()
        second = (self.lambda_q2.float() * self.lambda_k2.float()).sum().exp()
        return first - second + self.lambda_init

    def learned_lambdas(self, x: Tensor) -> Tensor:
        """See `Attention.learned_lambdas`: one for the layer."""
        return self.current_lambda().view(1, 1, 1)

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """See `Attention.forward`."""
        q, k, v = self.heads(x, rope)
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        lam = self.current_lambda()
        out = self.kernel.differential_attention(q, k, v, lam, scale=self.scale, mask=mask)
        return self.output(out, x)

    def output(self, context: Tensor, x: Tensor) -> Tensor:
        """See `Attention.output`: equation 3."""
        factor = 1 - self.lambda_init
        normed = context * factor if self.head_norm is None else self.head_norm(context, factor)
        return super().output(normed, x)

    def attention_rows(self, x: Tensor, rope: Rope, keys: Tensor) -> Tensor:
        """See `Attention.attention_rows`."""
        q, _, _ = self.heads(x, rope)
        return differential_map(q, keys, self.current_lambda(), scale=self.scale, mask=None)

    def heads(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of every head, with their positions in them."""
        heads = (2 * self.num_heads, 2 * self.num_kv_heads, self.num_kv_heads)
        return split_heads(self._project(x), rope, heads, 2 * self.head_dim)[:3]

    def one_head(self, x: Tensor, rope: Rope, h: int) -> Tensor:
        """See `Attention.one_head`: equations 1 to 3."""
        H, G, d = self.num_heads, self.num_kv_heads, self.head_dim
        w_q, w_k, w_v = torch.split(self.projection(), [2 * n * d for n in (H, G, G)])
        future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool().to(x.device)
        lam = (
            torch.exp(torch.dot(self.lambda_q1, self.lambda_k1))
            - torch.exp(torch.dot(self.lambda_q2, self.lambda_k2))
            + self.lambda_init
        )

        def project(weight: Tensor, index: int) -> Tensor:
            rows = weight[index * d : (index + 1) * d]
            return rotate((x @ rows.T).unsqueeze(1), rope).squeeze(1)

        g = h // (H // G)
        maps = []
        for i in range(2):
            q, k = project(w_q, 2 * h + i), project(w_k, 2 * g + i)
            scores = (q @ k.transpose(1, 2) / math.sqrt(d)).masked_fill(future, -math.inf)
            maps.append(F.softmax(scores, dim=-1))
        o = self.combined(maps[0], maps[1], lam) @ (x @ w_v[2 * d * g : 2 * d * (g + 1)].T)
        return (1 - self.lambda_init) * (o if self.head_norm is None else self.head_norm.formula(o))

    def projection(self) -> Tensor:
        """For `reference`: W_Q, W_K and W_V as one matrix, rows as `_project` returns them."""
        return self.qkv_proj.weight

    def combined(self, first: Tensor, second: Tensor, lam: Tensor) -> Tensor:
        """For `reference`: equation 1, of maps [..., T, T] of one head."""
        return first - lam * second

    def init_parameters(self, generator: torch.Generator) -> None:
        """Draw the lambda vectors from N(0, 0.1), as the authors do."""
        for vector in (self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2):
            vector.normal_(0.0, LAMBDA_STD, generator=generator)

    @classmethod
    def parameter_count(cls, config: AttentionConfig, d_model: int) -> int:
        """(4H + 4G) d columns of d_model, four lambda vectors of d, 2d gains with the norm."""
        assert isinstance(config, DiffV1Config)
        d = config.head_dim
        columns = (4 * config.output_heads + 4 * config.kv_heads) * d
        return columns * d_model + 4 * d + (2 * d if config.norm else 0)

    @classmethod
    def multiplications_per_pair(cls, config: AttentionConfig) -> int:
        """Two logits of d, and their difference once with the value of 2d, in each head."""
        return config.output_heads * (2 * config.head_dim + config.value_dim)
