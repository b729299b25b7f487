"""Shared DIFF attention (arXiv 2501.17900).

    W_Q^i = W_Q + U_Q^i D_Q^i,    W_K^i = W_K + U_K^i D_K^i        i = 1, 2; D: [r, D], U: [*, r]

and everything else as V1. Deviation from the paper: of the source only the idea was available, a
shared base and low-rank updates for the two maps; rank, initial values and exact factors are ours.
Base and updates are initialized like all matrices, so W_Q^1 and W_Q^2 (and W_K^1 and W_K^2) start
with the correlation 1 / (1 + r s^2), where s is the standard deviation of U: 0.5 under `fan_in`
for every rank, 0.975 under `normal` with 0.02 and a rank of 64, where the two maps start almost
equal. Shapes as in `models.attention.base`, and r = rank.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from difftransformer.models.attention.base import Attention
from difftransformer.models.attention.diff_v1 import DifferentialAttention, DiffV1Config
from difftransformer.models.config import AttentionConfig, setting
from difftransformer.models.linear import Linear
from difftransformer.models.rotary import Rope, split_heads


@dataclass(frozen=True, kw_only=True)
class SharedDiffConfig(DiffV1Config):
    """Options of `shared_diff`: those of V1, and the rank of the low-rank updates."""

    rank: int | None = setting(
        None,
        meaning="Rank of each update of a query or key projection. Left out: head_dim.",
        source="ours; the source could not be read",
        gt=0,
    )

    @property
    def update_rank(self) -> int:
        """Rank of the low-rank updates, with the default resolved to a number."""
        return self.rank or self.head_dim


class SharedDiffAttention(DifferentialAttention):
    """DIFF V1 whose two maps share one projection, apart from low-rank updates of each.

    Rows of ``base_proj``: queries [H, d], keys [G, d], values [G, 2d]; of ``low_proj``: D_Q^1,
    D_Q^2, D_K^1, D_K^2, r each; ``updates`` are U_Q^1, U_Q^2, U_K^1, U_K^2.
    """

    config_class: ClassVar[type[AttentionConfig]] = SharedDiffConfig

    def __init__(
        self, config: SharedDiffConfig, d_model: int, layer_index: int, backend: str
    ) -> None:
        Attention.__init__(self, config, d_model, layer_index, backend)
        H, G, d, self.rank = self.num_heads, self.num_kv_heads, self.head_dim, config.update_rank
        self.num_q_heads, self.num_k_heads = 2 * H, 2 * G
        self.base_proj = Linear(d_model, {"q_proj": H * d, "k_proj": G * d, "v_proj": G * 2 * d})
        self.low_proj = Linear(d_model, 4 * self.rank)
        self.updates = torch.nn.ModuleList(Linear(self.rank, n * d) for n in (H, H, G, G))
        self.o_proj = Linear(H * 2 * d, d_model)
        self.build_lambda_and_norm(config)

    def project(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return queries, keys and values in V1's shapes; arguments as in `Attention.project`."""
        H, G, d = self.num_heads, self.num_kv_heads, self.head_dim
        q, k, v = torch.split(self.base_proj(x), [H * d, G * d, G * 2 * d], dim=-1)
        low = torch.split(self.low_proj(x), self.rank, dim=-1)
        q1, q2, k1, k2 = (up(down_x) for up, down_x in zip(self.updates, low, strict=True))
        pairs = ((q + q1, q + q2), (k + k1, k + k2))
        qk = [torch.stack([x.view(*x.shape[:2], -1, d) for x in pair], dim=-2) for pair in pairs]
        qkv = torch.cat([*(heads.flatten(-3) for heads in qk), v], dim=-1)
        return split_heads(qkv, rope, (self.num_q_heads, self.num_k_heads, G), self.value_dim)
