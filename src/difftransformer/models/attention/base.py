"""The contract of an attention variant; tests/attention walks the registry and holds it.

Shapes: B = batch, T = query positions, S = key positions (cached ones and T new ones),
D = d_model, H = output heads, G = key/value heads, d = head_dim.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from difftransformer.config.model import AttentionConfig
from difftransformer.models.kernels import Kernel, kernel
from difftransformer.models.matrices import Linear
from difftransformer.models.rotary import Rope


class Cache(Protocol):
    """What a layer needs of a key/value cache; transformers' ``DynamicCache`` has it too."""

    def update(self, keys: Tensor, values: Tensor, layer_index: int, /) -> tuple[Tensor, Tensor]:
        """Append [B, G, T, *] keys and values of a layer; return all of them, [B, G, S, *]."""

    def get_seq_length(self) -> int:
        """Positions held so far."""


class Attention(nn.Module, ABC):
    """One attention layer: [B, T, D] -> [B, T, D].

    Matrices are `matrices.Linear`. The one named ``o_proj`` writes into the residual stream, so the
    initializer divides it by sqrt(2 num_layers). Other parameters than matrices and gains of norms
    are drawn by `init_parameters`.
    """

    config_class: ClassVar[type[AttentionConfig]]
    o_proj: Linear

    def __init__(
        self, config: AttentionConfig, d_model: int, layer_index: int, backend: str
    ) -> None:
        """Note the sizes and make the parameters.

        Args:
            config: The variant's own, resolved config (see `registry.configure`).
            d_model: Width of the residual stream.
            layer_index: 0-based index of the layer, which is also its slot in the cache.
            backend: A name that `models.kernels.choose_backend` settled.
        """
        super().__init__()
        self.d_model = d_model
        self.layer_index = layer_index
        self.backend = backend
        kernel(backend)  # refuses an unknown name now rather than at the first batch
        self.num_heads, self.num_kv_heads = config.output_heads, config.kv_heads
        self.head_dim = config.head_dim
        self._make_parameters(config)

    @abstractmethod
    def _make_parameters(self, config: AttentionConfig) -> None:
        """Make the layer's own parameters, once the sizes are known."""

    @property
    def scale(self) -> float:
        """Factor of the logits."""
        return float(self.head_dim**-0.5)

    @property
    def kernel(self) -> Kernel:
        """Operations of the backend; looked up, since a layer with a module in it has no copy."""
        return kernel(self.backend)

    @abstractmethod
    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Attend.

        Args:
            x: [B, T, D], normalised input of the layer.
            rope: cos and sin of the T positions (see `models.rotary`).
            mask: None for causal attention, else bool [B or 1, 1, T, S], True = may attend.
            cache: Where keys and values of earlier positions are.
        """

    def output(self, context: Tensor, x: Tensor) -> Tensor:
        """Turn what the heads have gathered into the layer's output: here, project it.

        Args:
            context: [B, T, H, e], each head's weighted sum of values.
            x: [B, T, D], input of the layer at the same positions, for what is gated by it.
        """
        return self.project(context)

    def project(self, context: Tensor) -> Tensor:
        """What the heads have gathered, [B, T, H, e], through ``o_proj``: [B, T, D]."""
        projected: Tensor = self.o_proj(context.flatten(2))
        return projected

    def reference(self, x: Tensor, rope: Rope) -> Tensor:
        """Compute the formula as the paper writes it, slowly, for whole causal sequences."""
        heads = [self.one_head(x, rope, h) for h in range(self.num_heads)]
        return torch.cat(heads, dim=-1) @ self.o_proj.weight.T

    @abstractmethod
    def one_head(self, x: Tensor, rope: Rope, h: int) -> Tensor:
        """For `reference`: what goes into the projection of head h, [B, T, e]."""

    @abstractmethod
    def heads(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [B, *, T, *] of every head, with their positions in them."""

    @property
    def key_heads(self) -> int | None:
        """How many heads of what goes to the cache as keys are keys; None: all of them."""
        return None

    def attention_maps(self, x: Tensor, rope: Rope) -> Tensor:
        """Return the weights [B, H, T, T] that each head gives to the values, signed, for analysis.

        Causal and quadratic in memory; arguments as for `forward`.
        """
        return self.attention_rows(x, rope, self.heads(x, rope)[1])

    @abstractmethod
    def attention_rows(self, x: Tensor, rope: Rope, keys: Tensor) -> Tensor:
        """Return the last rows of `attention_maps`, [B, H, T, S], from keys that are cached.

        Args:
            x: [B, T, D], normalised input of the layer at the last T positions.
            rope: cos and sin of these positions.
            keys: What `forward` put into the cache for this layer, those of the T included,
                [B, *, S, *].
        """

    def learned_lambdas(self, x: Tensor) -> Tensor | None:
        """Return what each head multiplies the map by that it subtracts; None: it subtracts none.

        For inputs [B, T, D] something that broadcasts to [B, T, H], of either sign.
        """
        return None

    @classmethod
    @abstractmethod
    def parameter_count(cls, config: AttentionConfig, d_model: int) -> int:
        """Return the number of parameters of one layer by formula."""

    @classmethod
    def multiplications_per_pair(cls, config: AttentionConfig) -> int:
        """Return the multiply-adds of a layer for one query and key: here, one map a head.

        d for a logit, e for its value, in each of the H heads (see `models.sizes`).
        """
        return config.output_heads * (config.head_dim + config.value_dim)

    def init_parameters(self, generator: torch.Generator) -> None:
        """Set the parameters that are not matrices; gains of norms are set to one already."""
