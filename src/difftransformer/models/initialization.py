"""Initial weights: each parameter has its own generator, seeded with one seed and its name."""

import hashlib

import torch
from torch import nn

from difftransformer.models.attention.base import Attention
from difftransformer.models.linear import Embedding, Linear
from difftransformer.models.normalization import RMSNorm


def init_weights(model: nn.Module, seed: int) -> None:
    """Initialize all weights of a model or a layer in place, with the defaults of `init_module`."""
    for name, module in model.named_modules():
        init_module(name, module, seed)


@torch.no_grad()
def init_module(
    name: str,
    module: nn.Module,
    seed: int,
    *,
    std: float | None = None,
    residual_scale: float = 1.0,
    embedding_std: float = 1.0,
) -> None:
    """Initialize the weights of one module, whose parameters are unsharded and on the CPU.

    A matrix depends only on the seed, its name and its shape, so models of one seed start with the
    same bytes in all matrices that they share. The matrices of a fused projection (see
    `linear.Linear`) are initialized one by one.

    Args:
        name: The module's name in its model.
        module: A projection, an embedding, a norm or attention; other modules are unchanged.
        seed: Seed of the model.
        std: Standard deviation of the matrices; None: 1 / sqrt(in_features).
        residual_scale: Factor of ``std`` for projections into the residual stream.
        embedding_std: Standard deviation of the token embedding.
    """
    if isinstance(module, Linear):
        matrix_std = module.in_features**-0.5 if std is None else std
        scale = residual_scale if name.endswith(("o_proj", "down_proj")) else 1.0
        for matrix, weight in module.named_weights(name):
            weight.normal_(0.0, matrix_std * scale, generator=_generator(seed, f"{matrix}.weight"))
    elif isinstance(module, Embedding):
        module.weight.normal_(0.0, embedding_std, generator=_generator(seed, f"{name}.weight"))
    elif isinstance(module, RMSNorm):
        module.weight.fill_(1.0)
    elif isinstance(module, Attention):
        for key, parameter in module.named_parameters(recurse=False):
            module.init_parameter(key, parameter, _generator(seed, f"{name}.{key}"))


def _generator(seed: int, name: str) -> torch.Generator:
    """Return the generator of one parameter; torch on the CPU uses 32 of its 64 bits."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
