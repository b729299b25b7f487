"""Dex from scratch (Dex-S of arXiv 2505.16333, appendix D and table 8).

    O_h = softmax(Q_h K_h' / sqrt(d)) V_h
    eq. 5   O'_h = O_h - lambda O_h W_D      for the selected heads h; O'_h = O_h for the others
    Y = concat(O'_1, ..., O'_H) W_O

One W_D of d x d per layer, or one per selected head; one lambda per layer. It runs with every
backend, since only the head outputs change. `convert.dex` applies Dex to trained models.

Deviation from the paper: it says only that Dex was attached from the beginning. Before training no
data tell heads apart, so ours selects all heads or the first of a layer; no pretrained function has
to be preserved by annealing, so lambda is learned from equation 4's lambda_init on; W_D is
initialized like all matrices. Shapes as in `models.attention.base`; k = selected heads.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from difftransformer.models.attention.base import Attention, Cache
from difftransformer.models.config import AttentionConfig, setting
from difftransformer.models.differential import lambda_init_of
from difftransformer.models.linear import Linear
from difftransformer.models.rotary import Rope

DEX = "arXiv 2505.16333"


@dataclass(frozen=True, kw_only=True)
class DexSConfig(AttentionConfig):
    """Options of the `dex_s` variant."""

    share: float = setting(
        1.0,
        meaning="Share of a layer's heads that are selected (the first ones), rounded, at least "
        "one.",
        source="ours; not stated",
        gt=0,
        le=1,
    )
    difference: Literal["layer", "head"] = setting(
        "layer",
        meaning="One W_D for the selected heads of a layer, or one per head.",
        source=f"{DEX}, figure 9 passes one; ours where it is not",
    )
    lambda_init: Literal["exponential"] | float = setting(
        "exponential",
        meaning="Initial lambda: `exponential` is 0.8 - 0.6 exp(-0.3 l) in the layer of 0-based "
        "index l, a number is the same in all layers; with 0 a model starts as a Transformer.",
        source=f"{DEX}, equation 4",
    )

    @property
    def selected(self) -> int:
        """Number of heads per layer to which Dex is applied."""
        return max(round(self.share * self.output_heads), 1)


class DexAttention(Attention):
    """Grouped-query softmax attention with Dex; `attention_maps` returns the softmax maps.

    `lambda_per_head` returns None, since no map is subtracted and the size of lambda alone, without
    that of W_D, means nothing.
    """

    config_class: ClassVar[type[AttentionConfig]] = DexSConfig

    def __init__(self, config: DexSConfig, d_model: int, layer_index: int, backend: str) -> None:
        super().__init__(config, d_model, layer_index, backend)
        self.build_projections()
        self.selected, d = config.selected, self.head_dim
        self.lambda_init = lambda_init_of(self, config.lambda_init)
        self.num_matrices = self.selected if config.difference == "head" else 1
        self.difference_proj = Linear(d, self.num_matrices * d)  # rows of each W_D in turn
        self.difference_proj.uses = self.selected // self.num_matrices
        self.lambda_learned = nn.Parameter(torch.empty(1))

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the layer's output, [B, T, D]; arguments as in `Attention.forward`."""
        q, k, v, _ = self.project(x, rope)  # [B, H, T, d], [B, G, T, d], [B, G, T, d]
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        attn = self.kernel.attention(q, k, v, scale=self.scale, mask=mask)  # [B, T, H, d]
        selected, unselected = attn.tensor_split((self.selected,), dim=2)
        if self.num_matrices == 1:
            difference = self.difference_proj(selected)
        else:
            w_d = self.difference_proj.weight.view(self.selected, -1, self.head_dim)
            difference = torch.einsum("btke,kfe->btkf", selected, w_d)
        selected = selected - self.lambda_learned.to(selected.dtype) * difference  # equation 5
        attn = torch.cat((selected, unselected), dim=2)
        return self.o_proj(attn.flatten(2))

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Set the learned lambda to lambda_init of the options."""
        parameter.fill_(self.lambda_init)
