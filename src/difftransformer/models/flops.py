"""Floating-point operations of a model, from its sizes alone.

Counted as torch's ``FlopCounterMode`` counts the equations: two for each multiply-add of a matrix
product, whole T x T attention maps although a causal kernel skips half, nothing for sums, norms
and softmax. A test holds both to the same number.
"""

import torch

from difftransformer.config.model import ModelConfig
from difftransformer.models.attention.registry import attention_class, configure
from difftransformer.models.matrices import Linear
from difftransformer.models.transformer import Transformer


def forward_flops(config: ModelConfig, seq_len: int) -> int:
    """Return the operations of a forward pass for each token of a sequence of ``seq_len``."""
    attention = configure(config.attention, config.d_model)
    pair = attention_class(attention.variant).multiplications_per_pair(attention)
    return 2 * (_weights(config) + config.num_layers * pair * seq_len)


def training_flops(config: ModelConfig, seq_len: int) -> int:
    """Return the operations of forward and backward for each token of a sequence of ``seq_len``.

    Backward has two products, each as large, for every product of forward.
    """
    return 3 * forward_flops(config, seq_len)


def _weights(config: ModelConfig) -> int:
    """Return the entries of all matrices that a token is multiplied with."""
    with torch.device("meta"):  # all layers are alike
        model = Transformer(config.model_copy(update={"num_layers": 1}))
    layer = sum(part.weight.numel() for part in model.layers.modules() if isinstance(part, Linear))
    return config.num_layers * layer + model.output_weight.numel()
