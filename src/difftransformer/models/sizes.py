"""Parameters, FLOPs and activation memory of a model from its config; matching of model sizes.

FLOPs are counted as torch's ``FlopCounterMode`` counts them (a test compares both): two per
multiply-add of a matrix multiplication, the full T x T attention map although a causal kernel
computes half of it, nothing for sums, norms and softmax.
"""

from dataclasses import replace
from functools import cache
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
    "training_flops": "training FLOPs per token",
}
_WIDTH, _POSITIONS = 8, 2


def count_parameters(config: ModelConfig) -> int:
    """Return a model's number of parameters without allocating them; tied matrices count once."""
    layer, other = layer_and_other_parameters(config)
    return other + config.num_layers * layer


@cache
def layer_and_other_parameters(config: ModelConfig) -> tuple[int, int]:
    """Return the number of parameters of one layer, and of everything outside the layers."""
    model = _one_layer_model(config)
    total = sum(parameter.numel() for parameter in model.parameters())
    layer = sum(parameter.numel() for parameter in model.layers.parameters())
    return layer, total - layer


class AttentionSize(NamedTuple):
    """Numbers of attention parameters in one layer."""

    parameters: int
    softmax_parameters: int | None
    """Parameters of softmax attention with equal numbers of query and key heads; None: no such
    layer exists."""
    num_q_heads: int
    """Number of query heads, each with one softmax map."""
    num_k_heads: int


def attention_size(config: ModelConfig) -> AttentionSize:
    """Return the numbers of attention parameters in one layer and in equal softmax attention.

    The latter has as many query and key heads of the same width.
    """
    parameters, layer = _attention_parameters(config.attention, config.d_model)
    heads = {"num_heads": layer.num_q_heads, "num_kv_heads": layer.num_k_heads}
    softmax_parameters = None
    if layer.num_q_heads % layer.num_k_heads == 0:
        softmax = {"variant": "softmax", "head_dim": layer.head_dim, **heads}
        softmax_parameters, _ = _attention_parameters(
            configure(softmax, config.d_model), config.d_model
        )
    return AttentionSize(parameters, softmax_parameters, layer.num_q_heads, layer.num_k_heads)


def _attention_parameters(attention: AttentionConfig, d_model: int) -> tuple[int, Attention]:
    with torch.device("meta"):
        layer = attention_class(attention.variant)(attention, d_model, 0, "eager")
    return sum(parameter.numel() for parameter in layer.parameters()), layer


def llama_matrices(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Return the shape [out, in] of each matrix of one Llama layer, keyed by its Llama name."""
    attention = config.attention
    d_model, head_dim = config.d_model, attention.head_dim
    num_heads, num_kv_heads = attention.output_heads, attention.kv_heads
    return {
        "q_proj": (num_heads * head_dim, d_model),
        "k_proj": (num_kv_heads * head_dim, d_model),
        "v_proj": (num_kv_heads * head_dim, d_model),
        "o_proj": (d_model, num_heads * head_dim),
        "gate_proj": (config.ffn_dim, d_model),
        "up_proj": (config.ffn_dim, d_model),
        "down_proj": (d_model, config.ffn_dim),
    }


def kvo_parameters(config: ModelConfig) -> int:
    """Return the number of parameters of W_K, W_V and W_O in one Llama layer."""
    shapes = llama_matrices(config)
    return sum(shapes[name][0] * shapes[name][1] for name in ("k_proj", "v_proj", "o_proj"))


def forward_flops(config: ModelConfig, seq_len: int, *, causal: bool = False) -> int:
    """Return the FLOPs per token of a forward pass over a sequence of ``seq_len`` = T tokens.

    With ``causal``, only the (T + 1) / 2 keys that a query sees on average are counted, as for
    model FLOPs utilization (MFU). Without, all T keys, as papers count.
    """
    model = _one_layer_model(config)
    (attention,) = (module for module in model.modules() if isinstance(module, Attention))
    linears = (module for module in model.layers.modules() if isinstance(module, Linear))
    layer = sum(linear.uses * linear.weight.numel() for linear in linears)
    weights = config.num_layers * layer + model.output_weight.numel()
    keys = seq_len + 1 if causal else 2 * seq_len
    return 2 * weights + config.num_layers * attention.macs_per_query_key() * keys


def training_flops(config: ModelConfig, seq_len: int, *, causal: bool = False) -> int:
    """Return the FLOPs per token of a forward and backward pass; arguments as for `forward_flops`.

    Backward has two matrix multiplications of equal size for each one of forward.
    """
    return 3 * forward_flops(config, seq_len, causal=causal)


class LayerActivations(NamedTuple):
    """Memory of one layer's activations for one sequence, in bytes."""

    saved: float
    """Bytes saved for the backward pass; without gradients, about the peak."""
    outputs: float
    """Bytes of outputs of matrices and fused attention, saved by "selective" checkpointing."""
    inputs: float
    """Bytes of the layer's input, saved by activation checkpointing."""


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
    """Return the memory of one layer's activations for one sequence, in bytes.

    Saved are the input and output of each matrix, the input of both norms (the output of a matrix,
    in the precision of the residual stream), swish(gate) of the feed-forward, and the attention
    output of each map and each pair of maps; plus the attention maps if the backend materializes
    them.

    Args:
        config: The model.
        backend: Attention backend, as `kernels.choose_backend` returns it.
        queries: Number of positions computed at a time, T.
        keys: T plus the number of positions in a cache, S.
        precision: "fp32", or "bf16" for autocast.
        masked: Whether a mask separates the documents of a row.
        grad: Whether a backward pass follows; without it `blocked` holds one block of maps.
    """
    layer, size = _one_layer_model(config).layers, 4 if precision == "fp32" else 2
    (attention,) = (module for module in layer.modules() if isinstance(module, Attention))
    linears = [module for module in layer.modules() if isinstance(module, Linear)]
    H, Q, D = attention.num_heads, attention.num_q_heads, config.d_model
    attn_outputs = attention.value_dim * (Q + H * (Q > H))
    residual = D * (4 if config.residual_in_fp32 else size)
    linear_outputs = sum(linear.uses * linear.out_features for linear in linears)
    linear_inputs = sum(linear.uses * linear.in_features for linear in linears)
    per_position = 2 * residual + size * (
        linear_outputs + linear_inputs + attn_outputs + config.ffn_dim - 2 * D
    )
    rows = 0.0  # rows of float32 attention weights in memory at a time, per query head
    if backend == "eager" or attention.materializes_maps:
        rows = attention.saved_maps_per_head * queries
    elif backend in ("blocked", "cpu_dispatch"):
        all_rows = queries if masked else (queries + BLOCK) / 2  # a block has only visible keys
        rows = min(all_rows if grad and keys <= MAX_SAVED_KEYS else 2 * BLOCK, queries)
    else:
        linear_outputs += attn_outputs
    maps = 4.0 * keys * (Q * rows + queries * masked)
    return LayerActivations(
        queries * per_position + maps,
        float(queries * size * linear_outputs),
        float(queries * residual),
    )


def _one_layer_model(config: ModelConfig) -> Transformer:
    """Return the model with a single layer, on the meta device."""
    with torch.device("meta"):
        return Transformer(replace(config, num_layers=1))


@torch.no_grad()
def kv_cache_numel_per_token(config: ModelConfig) -> int:
    """Return the number of elements per position in the key/value caches of all layers.

    It is measured by filling a cache with a narrow layer of the model's heads, so it is correct
    for every variant.
    """
    attention = config.attention
    layer = attention_class(attention.variant)(attention, _WIDTH, 0, "eager")
    table = RotaryTable(attention.head_dim, config.rope_theta)
    rope = table.span(0, _POSITIONS, torch.device("cpu"))
    cache = PrefixCache(_POSITIONS)
    layer(torch.zeros(1, _POSITIONS, _WIDTH), rope, None, cache)
    numel = sum(tensor.numel() for tensor in cache.get(0))
    return config.num_layers * numel // _POSITIONS


class FFNMatch(NamedTuple):
    """Result of `match_ffn`: the chosen ffn_dim and the resulting model size."""

    measure: Measure
    ffn_dim: int
    size: int
    """Parameters, or training FLOPs per token, of the resized model."""
    target: int
    """Parameters, or training FLOPs per token, of the model to match."""

    @property
    def relative_error(self) -> float:
        """Relative deviation (size - target) / target; negative if the resized model is smaller."""
        return self.size / self.target - 1


_MULTIPLE_OF = 8
"""Divisor of every ffn_dim that `match_ffn` chooses."""


def match_ffn(
    config: ModelConfig, reference: ModelConfig, measure: Measure, seq_len: int
) -> FFNMatch:
    """Return the ffn_dim, a multiple of 8, that makes ``config`` as large as ``reference``.

    Args:
        config: The model to resize; its own ffn_dim is ignored.
        reference: The model to match.
        measure: Match "parameters", or "training_flops" per token.
        seq_len: Length of a training sequence, for FLOPs.

    Raises:
        ConfigError: ``config`` is larger than ``reference`` even without a feed-forward.
    """

    def size(config: ModelConfig) -> int:
        if measure == "parameters":
            return count_parameters(config)
        return training_flops(config, seq_len)

    def resized(ffn_dim: int) -> int:
        return size(replace(config, ffn_dim=ffn_dim))

    target = size(reference)
    step = resized(2 * _MULTIPLE_OF) - resized(_MULTIPLE_OF)  # size is linear in ffn_dim
    steps = 1 + round((target - resized(_MULTIPLE_OF)) / step)
    if steps < 1:
        raise ConfigError(
            f"has more than {target:,} {_WORDS[measure]} even without a feed-forward; make its "
            "attention smaller, or match it to a larger run"
        )
    return FFNMatch(measure, steps * _MULTIPLE_OF, resized(steps * _MULTIPLE_OF), target)
