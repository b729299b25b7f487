"""How weights start: each is drawn from a generator of its own, by its name and one seed."""

import hashlib

import torch
from torch import nn

from difftransformer.models.attention.base import Attention
from difftransformer.models.linear import Embedding, Linear
from difftransformer.models.normalization import RMSNorm


def init_weights(module: nn.Module, seed: int) -> None:
    """Draw all weights of a model or a layer, in place, as `init_module` does without more."""
    for name, part in module.named_modules():
        init_module(name, part, seed)


@torch.no_grad()
def init_module(
    name: str,
    part: nn.Module,
    seed: int,
    *,
    std: float | None = None,
    residual: float = 1.0,
    embedding_std: float = 1.0,
) -> None:
    """Draw the weights of one module, whose parameters are whole and on the CPU.

    A matrix depends on the seed, its name and its shape, so modules of one seed share to the byte
    what they have in common, whatever else they have. Those that are multiplied as one (see
    `linear.Linear`) are drawn one by one.

    Args:
        name: Of the module in its model.
        part: A projection, an embedding, a norm or attention; of others nothing is drawn.
        seed: What all draws begin with.
        std: Standard deviation of the matrices; None: 1 / sqrt(inputs of the matrix).
        residual: Factor on it for projections back into the residual stream.
        embedding_std: Standard deviation of the token embedding.
    """
    if isinstance(part, Linear):
        own_std = part.in_features**-0.5 if std is None else std
        scaled = residual if name.endswith(("o_proj", "down_proj")) else 1.0
        for matrix, rows in part.matrices(name):
            rows.normal_(0.0, own_std * scaled, generator=_generator(seed, f"{matrix}.weight"))
    elif isinstance(part, Embedding):
        part.weight.normal_(0.0, embedding_std, generator=_generator(seed, f"{name}.weight"))
    elif isinstance(part, RMSNorm):
        part.weight.fill_(1.0)
    elif isinstance(part, Attention):
        for own_name, parameter in part.named_parameters(recurse=False):
            part.init_parameter(own_name, parameter, _generator(seed, f"{name}.{own_name}"))


def _generator(seed: int, name: str) -> torch.Generator:
    """Return the generator of one parameter; torch on the CPU uses 32 of its 64 bits."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
