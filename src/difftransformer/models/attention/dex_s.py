"""Dex from scratch (Dex-S of arXiv 2505.16333, appendix D and table 8), an interpretation.

    O_h = softmax(Q_h K_h' / sqrt(d)) V_h
    eq. 5   O'_h = O_h - lambda O_h W_D      for the selected heads h; O'_h = O_h for the others
    Y = concat(O'_1, ..., O'_H) W_O

One W_D of d x d for a layer, or one for each of its selected heads; lambda is one for a layer. Any
kernel serves, since only what the heads have gathered is changed; `models.dex` has the same for
models that are trained already.

Interpretation: the source says that Dex was attached from the beginning, and no more. Before
training no data tell heads apart, so ours are all of them, or the first of a layer; no annealing
has anything to spare, so lambda is learned from equation 4's lambda_init on; W_D is drawn like all
matrices. Shapes as in `models.attention.base`; k = selected heads.
"""

import math
from collections.abc import Iterator
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from difftransformer.config.base import setting
from difftransformer.config.model import AttentionConfig
from difftransformer.models.attention.base import Attention
from difftransformer.models.matrices import Linear, linear
from difftransformer.models.rotary import Rope

DEX = "arXiv 2505.16333"


class DexSConfig(AttentionConfig):
    """Options of `dex_s`."""

    share: float = setting(
        1.0,
        meaning="Share of a layer's heads that are selected, rounded, one at least: the first.",
        source="ours; not stated",
        gt=0,
        le=1,
    )
    difference: Literal["layer", "head"] = setting(
        "layer",
        meaning="One W_D for the selected heads of a layer, or one for each.",
        source=f"{DEX}, figure 9 passes one; ours where it is not",
    )
    lambda_init: Literal["exponential"] | float = setting(
        "exponential",
        meaning="lambda at the start: `exponential` is 0.8 - 0.6 exp(-0.3 l) in the layer of "
        "0-based index l, a number is the same in all layers; at 0 a model starts as if without.",
        source=f"{DEX}, equation 4",
    )

    @property
    def selected(self) -> int:
        """Selected heads of a layer."""
        return max(round(self.share * self.output_heads), 1)


class _Shared(Linear):
    """One matrix [d, d] for k heads: heads [..., k, d] times it, transposed.

    Its ``weight`` is [k, d, d], the matrix as often as a position meets it, so that whoever counts
    operations by the sizes of weights (`models.sizes`) counts them all.
    """

    def __init__(self, heads: int, head_dim: int) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.heads = head_dim, head_dim, heads
        self.matrix = nn.Parameter(torch.empty(head_dim, head_dim))

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return self.matrix.expand(self.heads, -1, -1)

    def matrices(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """See `Linear.matrices`: the one."""
        yield name, self.matrix

    def forward(self, heads: Tensor) -> Tensor:
        """[B, T, k, d] -> [B, T, k, d]."""
        return linear(heads, self.matrix)


class _Own(Linear):
    """A matrix for each of k heads, their rows one below the other: [k d, d]."""

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__(head_dim, heads * head_dim)

    def forward(self, heads: Tensor) -> Tensor:
        """[B, T, k, d] -> [B, T, k, d]."""
        weight = self.weight.view(*heads.shape[2:], -1)
        return torch.einsum("btke,kfe->btkf", heads, weight)


class DexAttention(Attention):
    """Grouped-query softmax attention; `attention_maps` are those of the softmax."""

    config_class: ClassVar[type[AttentionConfig]] = DexSConfig

    def _make_parameters(self, config: AttentionConfig) -> None:
        assert isinstance(config, DexSConfig)
        self.selected = config.selected
        self.lambda_init = (
            0.8 - 0.6 * math.exp(-0.3 * self.layer_index)
            if config.lambda_init == "exponential"
            else float(config.lambda_init)
        )
        kind = _Own if config.difference == "head" else _Shared
        self.difference_proj = kind(self.selected, self.head_dim)  # times W_D
        self.lambda_learned = nn.Parameter(torch.empty(1))

    def output(self, context: Tensor, x: Tensor) -> Tensor:
        """See `Attention.output`: equation 5, and the projection."""
        selected, others = context.tensor_split((self.selected,), dim=2)
        lam = self.lambda_learned.to(selected.dtype)
        changed = selected - lam * self.difference_proj(selected)
        return super().output(torch.cat((changed, others), dim=2), x)

    def one_head(self, x: Tensor, rope: Rope, h: int) -> Tensor:
        """See `Attention.one_head`."""
        o = F.softmax(self.one_logits(x, rope, h), dim=-1) @ self.one_value(x, h)
        if h >= self.selected:
            return o
        w_d = self.difference_proj.weight.view(self.selected, self.head_dim, self.head_dim)[h].T
        return o - self.lambda_learned * (o @ w_d)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Set lambda."""
        parameter.fill_(self.lambda_init)
