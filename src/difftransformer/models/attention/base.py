"""The interface of an attention variant; tests/attention holds every registered one to it.

Shapes: B = batch, T = query positions, S = key positions (cached ones and T new ones),
D = d_model, H = output heads, G = key/value heads, d = head_dim, e = value_dim.
"""

from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from difftransformer.models.config import AttentionConfig
from difftransformer.models.kernels import Kernel, kernel
from difftransformer.models.kernels.eager import attention_map
from difftransformer.models.linear import Linear
from difftransformer.models.rotary import Rope, split_heads


class Cache(Protocol):
    """What a layer needs of a key/value cache; transformers' ``DynamicCache`` has it too."""

    def update(self, keys: Tensor, values: Tensor, layer_index: int, /) -> tuple[Tensor, Tensor]:
        """Append [B, G, T, *] keys and values of a layer; return all of them, [B, G, S, *]."""

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions that a layer holds so far; the parameter's name is transformers'."""


class Attention(nn.Module):
    """One attention layer: [B, T, D] -> [B, T, D].

    A variant makes its matrices and parameters in `__init__` and computes its equations in
    `forward`. `attention_weights` and `component_maps` return its maps for analysis.

    Matrices are `linear.Linear`. The initializer divides the matrix named ``o_proj`` by
    sqrt(2 num_layers), since it writes into the residual stream. `init_parameter` sets parameters
    that are neither a matrix nor a norm's gain.
    """

    config_class: ClassVar[type[AttentionConfig]]
    value_matmuls_per_head: ClassVar[int] = 1
    """Matrix products of maps and values that a head computes."""
    saved_maps_per_head: ClassVar[float] = 1.5
    """Float32 maps that autograd keeps for each query head where maps are written out."""
    materializes_maps: ClassVar[bool] = False
    """Whether they are written out whatever the backend."""
    head_scale: float = 1.0
    """Constant factor of each head's output, next to its norm."""
    lambda_depends_on_input: bool = False
    """Whether `lambda_per_head` depend on the tokens, and not on parameters alone."""
    qkv_proj: Linear
    o_proj: Linear

    def __init__(self, config: AttentionConfig, d_model: int, index: int, backend: str) -> None:
        """Set the sizes; a variant makes its parameters afterwards.

        Args:
            config: The variant's own, resolved config (see `registry.configure`).
            d_model: Width of the residual stream.
            index: 0-based index of the layer, which is also its slot in the cache.
            backend: A name that `models.kernels.choose_backend` returned.
        """
        super().__init__()
        self.d_model = d_model
        self.layer_index = index
        self.backend = backend
        kernel(backend)  # refuses an unknown name now rather than at the first batch
        self.num_heads, self.num_kv_heads = config.output_heads, config.kv_heads
        self.num_q_heads, self.num_k_heads = self.num_heads, self.num_kv_heads
        self.head_dim, self.value_dim = config.head_dim, config.value_dim
        self.scale = float(self.head_dim**-0.5)  # of the logits

    def build_projections(self, extra: int = 0) -> None:
        """Make ``qkv_proj`` and ``o_proj`` for the numbers of queries, keys and values.

        Rows of ``qkv_proj`` are queries [`num_q_heads`, d], keys [`num_k_heads`, d], values [G, e]
        and ``extra`` ones, such as a lambda per head.
        """
        rows = {
            "q_proj": self.num_q_heads * self.head_dim,
            "k_proj": self.num_k_heads * self.head_dim,
            "v_proj": self.num_kv_heads * self.value_dim,
        }
        if extra:
            rows["further_proj"] = extra
        self.qkv_proj = Linear(self.d_model, rows)
        self.o_proj = Linear(self.num_heads * self.value_dim, self.d_model)

    @property
    def kernel(self) -> Kernel:
        """Operations of the backend; looked up, since a layer with a module in it has no copy."""
        return kernel(self.backend)

    def project(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Project the input of the layer, split it into heads, and rotate queries and keys.

        Returns:
            Queries [B, num_q_heads, T, d], keys [B, num_k_heads, T, d], values [B, G, T, e], and
            the extra columns [B, T, *].
        """
        heads = self.num_q_heads, self.num_k_heads, self.num_kv_heads
        return split_heads(self.qkv_proj(x), rope, heads, self.value_dim)

    def forward(
        self, x: Tensor, rope: Rope, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Attend.

        Args:
            x: [B, T, D], normalized input of the layer.
            rope: cos and sin of the T positions (see `models.rotary`).
            mask: None for causal attention, else bool [B or 1, 1, T, S], True = may attend.
            cache: Where keys and values of earlier positions are.
        """
        raise NotImplementedError

    def attention_weights(self, q: Tensor, k: Tensor, extra: Tensor) -> Tensor:
        """Return the weight of each value in each head's output, causal and signed: [B, H, T, S].

        Args:
            q: Queries of the last T positions, from `project`.
            k: Keys of all S positions, from `project` or a cache.
            extra: Extra columns of the T positions, from `project`.
        """
        return attention_map(q, k, scale=self.scale, mask=None)

    def component_maps(self, q: Tensor, k: Tensor, extra: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the positive and the subtracted map of each head, before any factor.

        Each [B, H, T, S]; arguments as for `attention_weights`. None if heads have one map, or more
        than two.
        """
        return None

    def lambda_per_head(self, x: Tensor) -> Tensor | None:
        """Return the factor of each head's subtracted map, of either sign.

        For inputs [B, T, D] it broadcasts to [B, T, H]. None if nothing is subtracted, or without
        a factor.
        """
        return None

    def macs_per_query_key(self) -> int:
        """Return the multiply-adds for one query and key (see `models.sizes`).

        d per logit, e per product of a head's map with its values.
        """
        products = self.value_matmuls_per_head * self.num_heads
        return self.num_q_heads * self.head_dim + products * self.value_dim

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Set a parameter of the layer's own, one that is neither a matrix nor a norm's gain.

        Args:
            name: Its attribute.
            parameter: What is set in place.
            generator: Its alone, from the seed and its name.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how {name} starts")
