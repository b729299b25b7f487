"""Sizes of a model from its settings alone, and settings that give it the size of another one.

Operations are counted as torch's ``FlopCounterMode`` counts the equations: two for each
multiply-add of a matrix product, whole T x T attention maps although a causal kernel skips half,
nothing for sums, norms and softmax. A test holds both to the same number.
"""

from dataclasses import replace
from typing import Literal, NamedTuple

import torch

from difftransformer.errors import ConfigError
from difftransformer.models.attention.base import Attention
from difftransformer.models.attention.registry import attention_class, configure
from difftransformer.models.cache import PrefixCache
from difftransformer.models.config import AttentionConfig, ModelConfig
from difftransformer.models.kernels.blocked import BLOCK, MAX_SAVED_KEYS
from difftransformer.models.linear import Linear
from difftransformer.models.rotary import RotaryTable
from difftransformer.models.transformer import Transformer

Measure = Literal["parameters", "training_flops"]
_WORDS: dict[Measure, str] = {
    "parameters": "parameters",
    "training_flops": "FLOPs of training for each token",
}
_WIDTH, _POSITIONS = 8, 2


def count_parameters(config: ModelConfig) -> int:
    """Return the number of parameters (a tied matrix once), counted without allocating them."""
    layer, outside = layer_and_other_parameters(config)
    return outside + config.num_layers * layer


def layer_and_other_parameters(config: ModelConfig) -> tuple[int, int]:
    """Return the number of parameters of a layer, and of all that is no layer."""
    model = _one_layer(config)
    whole = sum(parameter.numel() for parameter in model.parameters())
    layer = sum(parameter.numel() for parameter in model.layers.parameters())
    return layer, whole - layer


class AttentionSize(NamedTuple):
    """Parameters of the attention of one layer."""

    own: int
    plain: int | None
    """Those of softmax attention with as many query and key heads; None: there is none."""
    queries: int
    """Query heads: each has a softmax map."""
    keys: int


def attention_size(config: ModelConfig) -> AttentionSize:
    """Return the attention's parameters in one layer, and those of plain attention beside it."""
    own, layer = _attention_parameters(config.attention, config.d_model)
    heads = {"num_heads": layer.num_q_heads, "num_kv_heads": layer.num_k_heads}
    plain = None
    if layer.num_q_heads % layer.num_k_heads == 0:
        softmax = {"variant": "softmax", "head_dim": layer.head_dim, **heads}
        plain, _ = _attention_parameters(configure(softmax, config.d_model), config.d_model)
    return AttentionSize(own, plain, layer.num_q_heads, layer.num_k_heads)


def _attention_parameters(attention: AttentionConfig, d_model: int) -> tuple[int, Attention]:
    with torch.device("meta"):
        layer = attention_class(attention.variant)(attention, d_model, 0, "eager")
    return sum(parameter.numel() for parameter in layer.parameters()), layer


def llama_matrices(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Return rows and columns of the matrices of one layer, by their names in a Llama."""
    attention = config.attention
    d_model, width = config.d_model, attention.head_dim
    heads, key_heads = attention.output_heads, attention.kv_heads
    return {
        "q_proj": (heads * width, d_model),
        "k_proj": (key_heads * width, d_model),
        "v_proj": (key_heads * width, d_model),
        "o_proj": (d_model, heads * width),
        "gate_proj": (config.ffn_dim, d_model),
        "up_proj": (config.ffn_dim, d_model),
        "down_proj": (d_model, config.ffn_dim),
    }


def projections(config: ModelConfig) -> int:
    """Return the parameters of W_K, W_V and W_O of one layer of a Llama."""
    shapes = llama_matrices(config)
    return sum(shapes[name][0] * shapes[name][1] for name in ("k_proj", "v_proj", "o_proj"))


def forward_flops(config: ModelConfig, seq_len: int, *, causal: bool = False) -> int:
    """Return the operations of a forward pass for each token of a sequence of ``seq_len``.

    With ``causal`` a query meets the keys that it may see, (T + 1) / 2 of them on average: what has
    to be computed, and what a share of a device's peak is of. Without, all T, as papers count.
    """
    model = _one_layer(config)
    (attention,) = (part for part in model.modules() if isinstance(part, Attention))
    matrices = (part for part in model.layers.modules() if isinstance(part, Linear))
    layer = sum(part.uses * part.weight.numel() for part in matrices)
    weights = config.num_layers * layer + model.output_weight.numel()
    keys = seq_len + 1 if causal else 2 * seq_len
    return 2 * weights + config.num_layers * attention.macs_per_query_key() * keys


def training_flops(config: ModelConfig, seq_len: int, *, causal: bool = False) -> int:
    """Return the operations of forward and backward for each token of a sequence of ``seq_len``.

    Pairs as for `forward_flops`. Backward has two products, each as large, for every product of
    forward.
    """
    return 3 * forward_flops(config, seq_len, causal=causal)


class LayerActivations(NamedTuple):
    """Bytes of one layer for one sequence."""

    kept: float
    """Kept for the backward pass; without gradients about the most at a time."""
    outputs: float
    """Of matrices and of fused attention, which "selective" checkpointing keeps."""
    inputs: float
    """The layer's input, which activation checkpointing keeps."""


def layer_activations(
    config: ModelConfig,
    backend: str,
    queries: int,
    keys: int,
    precision: str,
    *,
    masked: bool = False,
    grad: bool = True,
) -> LayerActivations:
    """Return the bytes of a layer's activations for one sequence.

    Each matrix keeps its input and output, each of the two norms its input (the output of a matrix,
    in the precision of the residual stream), the feed-forward swish(gate), and attention the output
    of each map and that of each pair of maps. Maps are added where the backend writes them out.

    Args:
        config: The model.
        backend: Attention backend, as `kernels.choose_backend` returns it.
        queries: T, positions computed at a time.
        keys: S, T and the positions in a cache.
        precision: "fp32", or "bf16" for autocast.
        masked: Whether a mask separates the documents of a row.
        grad: Whether gradients follow; without them `blocked` holds one block of its maps.
    """
    layer, size = _one_layer(config).layers, 4 if precision == "fp32" else 2
    (attention,) = (part for part in layer.modules() if isinstance(part, Attention))
    matrices = [part for part in layer.modules() if isinstance(part, Linear)]
    H, Q, D = attention.num_heads, attention.num_q_heads, config.d_model
    heads = attention.value_dim * (Q + H * (Q > H))
    inputs = D * (4 if config.residual_in_fp32 else size)
    outputs = sum(part.uses * part.out_features for part in matrices)
    taken = sum(part.uses * part.in_features for part in matrices)
    position = 2 * inputs + size * (outputs + taken + heads + config.ffn_dim - 2 * D)
    rows = 0.0  # of float32 attention weights at a time, for each query head
    if backend == "eager" or attention.materializes_maps:
        rows = attention.saved_maps_per_head * queries
    elif backend in ("blocked", "cpu_dispatch"):
        whole = queries if masked else (queries + BLOCK) / 2  # a block has the keys that it sees
        rows = min(whole if grad and keys <= MAX_SAVED_KEYS else 2 * BLOCK, queries)
    else:
        outputs += heads
    maps = 4.0 * keys * (Q * rows + queries * masked)
    return LayerActivations(
        queries * position + maps, float(queries * size * outputs), float(queries * inputs)
    )


def _one_layer(config: ModelConfig) -> Transformer:
    """Return the model with one layer, all being alike, in no memory."""
    with torch.device("meta"):
        return Transformer(replace(config, num_layers=1))


@torch.no_grad()
def kv_cache_numel_per_token(config: ModelConfig) -> int:
    """Return how many numbers the caches of all layers grow by with each position.

    An attention layer with the model's heads, on an input of few dimensions, fills a cache: so this
    holds for any variant, whatever it keeps.
    """
    attention = config.attention
    layer = attention_class(attention.variant)(attention, _WIDTH, 0, "eager")
    table = RotaryTable(attention.head_dim, config.rope_theta)
    rope = table.span(0, _POSITIONS, torch.device("cpu"))
    cache = PrefixCache(_POSITIONS)
    layer(torch.zeros(1, _POSITIONS, _WIDTH), rope, None, cache)
    held = sum(tensor.numel() for tensor in cache.held(0))
    return config.num_layers * held // _POSITIONS


class Match(NamedTuple):
    """What was chosen, and how near it comes."""

    by: Measure
    ffn_dim: int
    size: int
    """Parameters, or operations of training a token, of the sized model."""
    wanted: int
    """Those of the one it is sized after."""

    @property
    def residual(self) -> float:
        """How much larger the sized model is, as a share: negative where it is smaller."""
        return self.size / self.wanted - 1


_MULTIPLE_OF = 8
"""What ffn_dim is a multiple of, where it is matched."""


def match_ffn(config: ModelConfig, wanted: ModelConfig, by: Measure, seq_len: int) -> Match:
    """Return the ffn_dim, a multiple of 8, that makes ``config`` as large as ``wanted``.

    Args:
        config: The model to size; its own ffn_dim does not count.
        wanted: The model to be like.
        by: Equal parameters, or equal operations of training for each token.
        seq_len: Length of a training sequence, in positions; for operations alone.

    Raises:
        ConfigError: No feed-forward would be left.
    """

    def size(config: ModelConfig) -> int:
        return count_parameters(config) if by == "parameters" else training_flops(config, seq_len)

    def sized(ffn_dim: int) -> int:
        return size(replace(config, ffn_dim=ffn_dim))

    goal = size(wanted)
    step = sized(2 * _MULTIPLE_OF) - sized(_MULTIPLE_OF)  # both measures are linear in ffn_dim
    steps = 1 + round((goal - sized(_MULTIPLE_OF)) / step)
    if steps < 1:
        raise ConfigError(
            f"without any feed-forward it has more {_WORDS[by]} than {goal:,}; make its attention "
            f"smaller, or match it to a larger run"
        )
    return Match(by, steps * _MULTIPLE_OF, sized(steps * _MULTIPLE_OF), goal)
