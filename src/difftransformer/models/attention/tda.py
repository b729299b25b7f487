"""Threshold differential attention (arXiv 2601.12145; github snap-research/TDA).

    R_ij = max(0, q_i . k_j - tau_i)^p,    tau_i = beta sqrt(2 ln(i) / d)        q, k of length 1
    O_h = (R(q1, k1) - clamp(lambda_h, 0, 1) R(q2, k2)) V
    Y = concat(N(O_1), ..., N(O_H)) W_O

i counts the keys that a query may attend to, itself included. Deviation from the paper: the
published kernel has only the map. Head layout (two queries and keys of d, one value of 2d) and the
per-head RMSNorm N are V1's, the latter because R is not normalized; lambda is learned per head,
beta is not. Shapes as in `models.attention.base`.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from difftransformer.models.attention.base import Cache
from difftransformer.models.attention.diff_v1 import DifferentialAttention, DiffV1Config
from difftransformer.models.autograd import at_least_fp32, no_autocast
from difftransformer.models.config import AttentionConfig, setting
from difftransformer.models.kernels.eager import apply_attention, apply_logit_hooks, causal_mask
from difftransformer.models.normalization import norm_and_scale
from difftransformer.models.rotary import Rope

SOURCE = "github snap-research/TDA"


@dataclass(frozen=True, kw_only=True)
class TdaConfig(DiffV1Config):
    """Options of `tda`; ``num_heads`` counts differential heads, as in V1."""

    beta: float = setting(
        1.0, meaning="Factor of the threshold.", source=f"{SOURCE} (README: 1.0)", ge=0
    )
    power: float = setting(
        2.0, meaning="Exponent p of what exceeds it.", source=f"{SOURCE} (relu_power)", ge=1
    )
    lambda_init: float = setting(
        0.5, meaning="Initial lambda of every head.", source=f"{SOURCE} (README: 0.5)"
    )
    norm: bool = setting(
        True,
        meaning="RMSNorm over each head's output of 2d, one weight shared by all heads.",
        source="ours; the source could not be read",
    )


class ThresholdDifferentialAttention(DifferentialAttention):
    """Threshold differential attention in plain PyTorch.

    It materializes T x S maps per head with every backend.
    """

    config_class: ClassVar[type[AttentionConfig]] = TdaConfig
    saved_maps_per_head: ClassVar[float] = 3.0
    materializes_maps: ClassVar[bool] = True

    def __init__(self, config: TdaConfig, d_model: int, layer_index: int, backend: str) -> None:
        super().__init__(config, d_model, layer_index, backend)
        self.beta, self.power = config.beta, config.power
        self.head_scale = 1.0  # V1's factor belongs to its own lambda

    def build_lambda(self) -> None:
        """Create one learned lambda per head."""
        self.lambdas = nn.Parameter(torch.empty(self.num_heads))

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the layer's output, [B, T, D]; arguments as in `Attention.forward`."""
        q, k, v, _ = self.project(x, rope)  # [B, 2H, T, d], [B, 2G, T, d], [B, G, T, 2d]
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        map1, map2 = self._maps(q, k, mask)  # [B, H, T, S]
        attn = apply_attention(map1 - self.lambda_full() * map2, v)  # [B, T, H, 2d]
        attn = norm_and_scale(attn, self.head_norm, self.head_scale)
        return self.o_proj(attn.flatten(2))

    def lambda_full(self) -> Tensor:
        """Return lambda per head, [H, 1, 1], or the fixed lambda of the options, a scalar."""
        if self.lambda_fixed is not None:
            return super().lambda_full()
        return self.lambdas.clamp(0, 1).view(-1, 1, 1)

    def _maps(self, q: Tensor, k: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return R(q1, k1) and R(q2, k2) in float32 or wider, [B, H, T, S] each."""
        allowed = causal_mask(q.shape[-2], k.shape[-2], q.device) if mask is None else mask
        q, k = (F.normalize(at_least_fp32(x), dim=-1) for x in (q, k))
        B, T, S, d = len(q), q.shape[-2], k.shape[-2], self.head_dim
        k = k.reshape(B, -1, 2, S, d).repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)
        with no_autocast(q):
            cosines = q.reshape(B, -1, 2, T, d) @ k.transpose(-2, -1)
        logits = apply_logit_hooks(cosines.flatten(1, 2), allowed, softmax=False)
        num_keys = allowed.sum(dim=-1, keepdim=True).to(q.dtype)
        tau = self.beta * torch.sqrt(2 * num_keys.log() / d)
        excess = (logits.view_as(cosines) - tau.unsqueeze(-3)).relu() ** self.power
        map1, map2 = excess.masked_fill(~allowed.unsqueeze(-3), 0.0).unbind(dim=2)
        return map1, map2

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Set the learned lambda of every head to lambda_init of the options."""
        parameter.fill_(self.lambda_init)

    def component_maps(self, q: Tensor, k: Tensor, extra: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two thresholded maps R(q1, k1) and R(q2, k2), causal, [B, H, T, S] each."""
        return self._maps(q, k, None)
