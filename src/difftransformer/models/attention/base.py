"""The interface of an attention variant; tests/attention checks every registered variant.

Shapes: B = batch, T = query positions, S = key positions (cached ones and T new ones),
D = d_model, H = output heads, G = key/value heads, d = head_dim, e = value_dim.
"""

from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from difftransformer.models.config import AttentionConfig
from difftransformer.models.kernels import Kernel, get_kernel
from difftransformer.models.kernels.eager import attention_map
from difftransformer.models.linear import Linear
from difftransformer.models.rotary import Rope, split_heads


class Cache(Protocol):
    """Interface of an attention layer's key/value cache; transformers' ``DynamicCache`` has it."""

    def update(self, keys: Tensor, values: Tensor, layer_index: int, /) -> tuple[Tensor, Tensor]:
        """Append new keys and values [B, G, T, *] of a layer; return all cached, [B, G, S, *]."""

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of positions that the cache holds for one layer."""


class Attention(nn.Module):
    """Base class of the attention variants: one attention layer, [B, T, D] -> [B, T, D].

    A variant creates its parameters in `__init__` and computes its equations in `forward`.
    `attention_weights` and `component_maps` return its attention maps for analysis.

    Matrices are `linear.Linear`. The initializer divides the weight of ``o_proj`` by
    sqrt(2 num_layers), since it writes into the residual stream. `init_parameter` initializes
    parameters that are neither a matrix nor a norm's weight.
    """

    config_class: ClassVar[type[AttentionConfig]]
    value_matmuls_per_head: ClassVar[int] = 1
    """Matrix multiplications of an attention map with the values, per output head."""
    saved_maps_per_head: ClassVar[float] = 1.5
    """Float32 maps that autograd saves per query head if the backend materializes maps."""
    materializes_maps: ClassVar[bool] = False
    """Whether maps are materialized with every backend."""
    head_scale: float = 1.0
    """Constant factor of each head's output, after its norm."""
    lambda_depends_on_input: bool = False
    """Whether `lambda_per_head` depends on the input, and not only on parameters."""
    qkv_proj: Linear
    o_proj: Linear

    def __init__(
        self, config: AttentionConfig, d_model: int, layer_index: int, backend: str
    ) -> None:
        """Set the sizes; a variant creates its parameters afterwards.

        Args:
            config: The variant's resolved config (see `registry.configure`).
            d_model: Width of the residual stream.
            layer_index: 0-based index of the layer, which is also its slot in the cache.
            backend: A name that `models.kernels.choose_backend` returned.
        """
        super().__init__()
        self.d_model = d_model
        self.layer_index = layer_index
        self.backend = backend
        get_kernel(backend)  # raises for an unknown name now rather than at the first batch
        self.num_heads, self.num_kv_heads = config.output_heads, config.kv_heads
        self.num_q_heads, self.num_k_heads = self.num_heads, self.num_kv_heads
        self.head_dim, self.value_dim = config.head_dim, config.value_dim
        self.scale = float(self.head_dim**-0.5)  # of the logits

    def build_projections(self, extra_features: int = 0) -> None:
        """Create the linear layers ``qkv_proj`` (fused input projection) and ``o_proj`` (output).

        The rows of ``qkv_proj``'s weight are queries [`num_q_heads`, d], keys [`num_k_heads`, d],
        values [G, e] and ``extra_features`` more, such as one lambda per head.
        """
        out_features = {
            "q_proj": self.num_q_heads * self.head_dim,
            "k_proj": self.num_k_heads * self.head_dim,
            "v_proj": self.num_kv_heads * self.value_dim,
        }
        if extra_features:
            out_features["further_proj"] = extra_features  # the name seeds its initial values
        self.qkv_proj = Linear(self.d_model, out_features)
        self.o_proj = Linear(self.num_heads * self.value_dim, self.d_model)

    @property
    def kernel(self) -> Kernel:
        """Attention operations (forward functions) of the layer's backend.

        They are looked up by name at each call, so the layer can be deep-copied.
        """
        return get_kernel(self.backend)

    def project(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Project the input of the layer, split it into heads, and apply RoPE to queries and keys.

        Returns:
            Queries [B, num_q_heads, T, d], keys [B, num_k_heads, T, d], values [B, G, T, e], and
            the extra features [B, T, *].
        """
        num_heads = self.num_q_heads, self.num_k_heads, self.num_kv_heads
        return split_heads(self.qkv_proj(x), rope, num_heads, self.value_dim)

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Compute the attention output, [B, T, D].

        Args:
            x: [B, T, D], normalized input of the layer.
            rope: cos and sin of the T positions (see `models.rotary`).
            mask: None for the causal mask, else bool [B or 1, 1, T, S], True = may attend.
            cache: Keys and values of earlier positions; these T are appended.
        """
        raise NotImplementedError

    def attention_weights(self, q: Tensor, k: Tensor, extra: Tensor) -> Tensor:
        """Return the signed weight of each value in each head's output, [B, H, T, S]; causal.

        Args:
            q: Queries of the last T positions, from `project`.
            k: Keys of all S positions, from `project` or a cache.
            extra: Extra features of the T positions, from `project`.
        """
        return attention_map(q, k, scale=self.scale, mask=None)

    def component_maps(self, q: Tensor, k: Tensor, extra: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return each head's positive and subtracted attention map, not multiplied by lambda.

        Each map is [B, H, T, S]; arguments as for `attention_weights`. None if heads have one map,
        or more than two.
        """
        return None

    def lambda_per_head(self, x: Tensor) -> Tensor | None:
        """Return lambda, the signed factor of the attention map that each head subtracts.

        For inputs [B, T, D] the result broadcasts to [B, T, H]. It is None if nothing is
        subtracted, or the subtracted map has no factor.
        """
        return None

    def macs_per_query_key(self) -> int:
        """Return the multiply-adds per query-key pair: d per logit, e per value product."""
        value_matmuls = self.value_matmuls_per_head * self.num_heads
        return self.num_q_heads * self.head_dim + value_matmuls * self.value_dim

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Initialize a parameter of the layer that is neither a matrix nor a norm's weight.

        Args:
            name: Attribute name of the parameter.
            parameter: The parameter, initialized in place.
            generator: Random generator for this parameter only, seeded with the parameter's name.
        """
        raise NotImplementedError(f"{type(self).__name__} does not initialize {name}")
