"""Hooks on the attention layers of a model, and what they multiply the maps by that they subtract.

Shapes: B = windows, T = positions, H = output heads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from difftransformer.config.model import lambda_metric
from difftransformer.models.attention.base import Attention

Lambdas = Mapping[int, Sequence[Tensor]]
"""By layer that subtracts a map: its factors, means over positions and heads."""


@contextmanager
def watched_lambdas(model: Any) -> Iterator[Lambdas]:
    """Collect the factors of the maps that heads subtract while the model runs."""
    found: dict[int, list[Tensor]] = {}

    def hook(layer: Attention, inputs: Any) -> None:
        factors = layer.learned_lambdas(inputs[0])  # broadcast to [B, T, H]
        if factors is not None:
            found.setdefault(layer.layer_index, []).append(factors.double().cpu().mean((1, 2)))

    with hooked([(layer, hook) for layer in attention_layers(model)]):
        yield found


def lambda_means(found: Lambdas) -> dict[str, float]:
    """Metrics of the layers that subtract a map: mean over heads, positions and windows."""
    return {
        lambda_metric(layer): float(torch.cat(list(parts)).mean())
        for layer, parts in sorted(found.items())
    }


def attention_layers(model: Any) -> list[Attention]:
    """Attention layers of a model, in their order."""
    return [module for module in model.modules() if isinstance(module, Attention)]


@contextmanager
def hooked(hooks: Sequence[tuple[nn.Module, Callable[..., Any]]]) -> Iterator[None]:
    """Call hooks before their modules run."""
    with ExitStack() as handles:
        for module, hook in hooks:
            handles.callback(module.register_forward_pre_hook(hook).remove)
        yield
