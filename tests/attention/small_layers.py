"""Every variant of the registry, in small configurations derived from its own settings."""

from collections.abc import Iterator
from dataclasses import fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import torch

from difftransformer.models.attention.base import Attention
from difftransformer.models.attention.registry import attention_class, configure, variants
from difftransformer.models.config import AttentionConfig
from difftransformer.models.rotary import Rope, RotaryTable

D_MODEL = 24
SHARINGS: dict[str, dict[str, Any]] = {
    "mha": {"head_dim": 6, "num_heads": 4},
    "gqa": {"head_dim": 4, "num_heads": 4, "num_kv_heads": 2},
    "mqa": {"head_dim": 8, "num_heads": 3, "num_kv_heads": 1},
}

FITTING: dict[str, dict[str, Any]] = {
    # At d of 4 the full threshold lets nothing pass, and the norm blows up the rounding of what
    # little does by 1 / sqrt(norm_eps).
    "tda": {"beta": 0.3, "norm_eps": 0.01},
    "shared_diff": {"rank": 2},
}
"""What a variant needs to be itself at these widths."""


def configurations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each variant with each sharing of heads, and each choice of its own settings."""
    for variant in variants():
        own = {"variant": variant, **FITTING.get(variant, {})}
        for sharing, options in SHARINGS.items():
            yield f"{variant}-{sharing}", {**own, **options}
        kind = attention_class(variant).config_class
        for field in fields(kind):
            if field.name not in AttentionConfig.names():
                for value in _choices(field.type):
                    if value != field.default:
                        changed = {**own, **SHARINGS["gqa"], field.name: value}
                        yield f"{variant}-{field.name}={value}", changed


def _choices(annotation: Any) -> list[Any]:
    """What a setting may be: switches, words, and a number where there may be none."""
    if annotation is bool:
        return [True, False]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    parts = get_args(annotation)
    number = [0.4] if {float, NoneType} <= set(parts) else []
    return number + [
        word for part in parts if get_origin(part) is Literal for word in get_args(part)
    ]


def build(options: dict[str, Any], backend: str, layer_index: int = 1) -> Attention:
    """A layer with weights large enough that softmax is far from uniform."""
    config = configure(options, D_MODEL)
    layer = attention_class(config.variant)(config, D_MODEL, layer_index, backend)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in layer.named_parameters(recurse=False):
            layer.init_parameter(name, parameter, generator)
        for name, parameter in layer.named_parameters():
            if parameter.ndim == 2:
                parameter.normal_(0.0, 1.5 * D_MODEL**-0.5, generator=generator)
            elif name.endswith("norm.weight"):
                parameter.uniform_(0.5, 1.5, generator=generator)
    return layer


def inputs(layer: Attention, length: int, batch: int = 2) -> tuple[torch.Tensor, Rope]:
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(batch, length, D_MODEL, generator=generator)
    head_dim = layer.head_dim
    assert isinstance(head_dim, int)
    return x, RotaryTable(head_dim, 100.0).span(0, length, torch.device("cpu"))
