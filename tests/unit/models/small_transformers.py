"""Small models of ours with random weights."""

import torch

from difftransformer.config.model import ModelConfig
from difftransformer.models.transformer import Transformer


def with_gains(config: ModelConfig, seed: int) -> Transformer:
    """A model whose gains of norms are not one, so that a test sees them."""
    torch.manual_seed(seed)
    model = Transformer.build(config, "sdpa", seed=seed)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return model.eval()
