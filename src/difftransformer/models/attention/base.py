"""The contract of an attention variant; tests/attention walks the registry and holds it.

Shapes: B = batch, T = query positions, S = key positions (cached ones and T new ones),
D = d_model, H = output heads, G = key/value heads, d = head_dim, e = value_dim.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from difftransformer.config.model import AttentionConfig
from difftransformer.models.kernels import Kernel, kernel
from difftransformer.models.kernels.eager import attention_map, causal
from difftransformer.models.matrices import Linear
from difftransformer.models.rotary import Rope, split_heads


class Cache(Protocol):
    """What a layer needs of a key/value cache; transformers' ``DynamicCache`` has it too."""

    def update(self, keys: Tensor, values: Tensor, layer_index: int, /) -> tuple[Tensor, Tensor]:
        """Append [B, G, T, *] keys and values of a layer; return all of them, [B, G, S, *]."""

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions that a layer holds so far; the parameter's name is transformers'."""


class Rows(NamedTuple):
    """Rows of a layer's maps for some neighbouring queries, b of them.

    Attributes:
        start: Position of the first query.
        weights: What each head gives to the values, signed, [B, H, b, start + b].
        pair: The two maps that it is made of, each like the weights; None: they are not two.
        seen: Which keys each query sees, bool [b, start + b]; the weights of others are 0.
        layer: 0-based index of the layer.
    """

    start: int
    weights: Tensor
    pair: tuple[Tensor, Tensor] | None
    seen: Tensor
    layer: int


class Attention(nn.Module):
    """One attention layer: [B, T, D] -> [B, T, D].

    The base projects, turns, caches and projects back; a variant says what the heads gather
    (`context`, and `weights` for analysis) and what becomes of it (`output`). As it stands here,
    that is multi-head or grouped-query softmax attention.

    Rows of ``qkv_proj``: queries [Q, d], keys [K, d], values [G, e] and `further_rows`, with Q =
    `queries_per_head` H and K = `keys_per_group` G; query j belongs to group j // (Q / G), and to
    key j % `keys_per_group` of that.

    Matrices are `matrices.Linear`. The one named ``o_proj`` writes into the residual stream, so the
    initializer divides it by sqrt(2 num_layers). Other parameters than matrices and gains of norms
    are set by `init_parameter`.
    """

    config_class: ClassVar[type[AttentionConfig]]
    queries_per_head: ClassVar[int] = 1
    keys_per_group: ClassVar[int] = 1
    authors_names: ClassVar[Mapping[str, str]] = {}
    """Names of its tensors in the code its authors published, see `models.authors`."""
    factor: float = 1.0
    """What `output` multiplies by beside the norm of the heads, if there is one."""
    lambdas_follow_tokens: bool = False
    """Whether `learned_lambdas` depend on the tokens, and not on parameters alone."""

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
        self.num_queries = self.queries_per_head * self.num_heads
        self.num_keys = self.keys_per_group * self.num_kv_heads
        self.head_dim, self.value_dim = config.head_dim, config.value_dim
        self._make_projections(config)
        self.o_proj = Linear(self.num_heads * self.value_dim, d_model)
        self._make_parameters(config)

    def _make_projections(self, config: AttentionConfig) -> None:
        """Make what `_project` applies."""
        rows = {
            "q_proj": self.num_queries * self.head_dim,
            "k_proj": self.num_keys * self.head_dim,
            "v_proj": self.num_kv_heads * self.value_dim,
            "further_proj": self.further_rows(config),
        }
        self.qkv_proj = Linear(self.d_model, rows)

    def _make_parameters(self, config: AttentionConfig) -> None:
        """Make the parameters that a variant has beside its projections."""

    @classmethod
    def further_rows(cls, config: AttentionConfig) -> int:
        """Return how many numbers a variant projects from the layer's input beside its heads.

        They are rows of ``qkv_proj``, since a product of their own costs more than these few.
        """
        return 0

    @property
    def scale(self) -> float:
        """Factor of the logits."""
        return float(self.head_dim**-0.5)

    @property
    def kernel(self) -> Kernel:
        """Operations of the backend; looked up, since a layer with a module in it has no copy."""
        return kernel(self.backend)

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
        q, k, v, further = self._split(x, rope)
        if cache is not None:
            k, v = cache.update(k, v, self.layer_index)
        return self.output(self.context(q, k, v, further, mask), x)

    def _split(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, what goes to the cache as keys (those first) and as values, and the rest."""
        heads = (self.num_queries, self.num_keys, self.num_kv_heads)
        return split_heads(self._project(x), rope, heads, self.value_dim)

    def _project(self, x: Tensor) -> Tensor:
        """Numbers of each position in the order of the rows of ``qkv_proj``."""
        out: Tensor = self.qkv_proj(x)
        return out

    def heads(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, Q, T, d], keys [B, K, T, d] and values [B, G, T, e], positions in them."""
        q, k, v, _ = self._split(x, rope)
        return q, k[:, : self.num_keys], v

    def context(
        self, q: Tensor, k: Tensor, v: Tensor, further: Tensor, mask: Tensor | None
    ) -> Tensor:
        """What the heads gather, [B, T, H, e].

        Args:
            q: [B, Q, T, d].
            k: [B, K, S, d], of all positions.
            v: [B, G, S, e], of all positions.
            further: [B, T, `further_rows`], what else was projected from the layer's input.
            mask: See `forward`.
        """
        return self.kernel.attention(q, k, v, scale=self.scale, mask=mask)

    def weights(self, q: Tensor, k: Tensor, further: Tensor) -> Tensor:
        """Rows of the maps that `context` applies to the values, [B, H, T, S], written out."""
        return attention_map(q, k, scale=self.scale, mask=None)

    def pair(self, q: Tensor, k: Tensor, further: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the map of each head that is kept and the one that is subtracted, for analysis.

        Each [B, H, T, S] and before any factor; arguments as for `weights`. None: a head has not
        two maps, but one or more than two.
        """
        return None

    def output(self, context: Tensor, x: Tensor) -> Tensor:
        """Turn what the heads have gathered into the layer's output: here, project it.

        Args:
            context: [B, T, H, e], each head's weighted sum of values.
            x: [B, T, D], input of the layer at the same positions, for what is gated by it.
        """
        projected: Tensor = self.o_proj(context.flatten(2))
        return projected

    def attention_maps(self, x: Tensor, rope: Rope) -> Tensor:
        """Return the weights [B, H, T, T] that each head gives to the values, signed, for analysis.

        Causal and quadratic in memory; arguments as for `forward`.
        """
        return self.attention_rows(x, rope, self._split(x, rope)[1])

    def attention_rows(self, x: Tensor, rope: Rope, keys: Tensor) -> Tensor:
        """Return the last rows of `attention_maps`, [B, H, T, S], from keys that are cached.

        Args:
            x: [B, T, D], normalised input of the layer at the last T positions.
            rope: cos and sin of these positions.
            keys: What `forward` put into the cache for this layer, those of the T included,
                [B, *, S, *].
        """
        q, _, _, further = self._split(x, rope)
        return self.weights(q, keys, further)

    def row_blocks(self, x: Tensor, rope: Rope, block: int) -> Iterator[Rows]:
        """Return the rows of `attention_maps` and of the pairs, up to ``block`` queries at a time.

        Without the keys that none of these queries sees. Queries and keys are made now, rows when
        they are asked for; other arguments as for `forward`.
        """
        q, k, _, further = self._split(x, rope)
        further = further.clone()  # a view would keep all that is projected

        def rows(start: int, stop: int) -> Rows:
            given = q[:, :, start:stop], k[:, :, :stop], further[:, start:stop]
            seen = causal(stop - start, stop, x.device)
            return Rows(start, self.weights(*given), self.pair(*given), seen, self.layer_index)

        T = x.shape[1]
        return (rows(start, min(start + block, T)) for start in range(0, T, block))

    def learned_lambdas(self, x: Tensor) -> Tensor | None:
        """Return what each head multiplies the map by that it subtracts.

        For inputs [B, T, D] something that broadcasts to [B, T, H], of either sign. None: it
        subtracts none, or without a factor.
        """
        return None

    @classmethod
    def multiplications_per_pair(cls, config: AttentionConfig) -> int:
        """Return the multiply-adds of a layer for one query and key: here, Q maps.

        d for a logit, e for its value, in each of them (see `models.sizes`).
        """
        return cls.queries_per_head * config.output_heads * (config.head_dim + config.value_dim)

    def init_parameter(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Set a parameter of the layer's own, one that is neither a matrix nor a norm's gain.

        Args:
            name: Its attribute.
            parameter: What is set in place.
            generator: Its alone, from the seed and its name.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how {name} starts")
