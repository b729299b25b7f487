"""The variants by name. Lazy: the file of a variant is imported only when it is selected.

Adding a variant: write ``models/attention/<name>.py`` with an `Attention` subclass, and one line
here. Everything else (configuration, checkpoints, export, contract tests, tables) follows.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from difftransformer.config.model import AttentionConfig
from difftransformer.errors import ConfigError

if TYPE_CHECKING:
    from difftransformer.models.attention.base import Attention

_VARIANTS = {
    "softmax": "difftransformer.models.attention.softmax:SoftmaxAttention",
    "diff_v1": "difftransformer.models.attention.diff_v1:DifferentialAttention",
}


def variants() -> tuple[str, ...]:
    """Names of all variants, in the order of the registry; imports none of them."""
    return tuple(_VARIANTS)


def variant_location(name: str) -> str:
    """``module:Class`` of a variant, without importing it.

    Raises:
        ConfigError: no variant of that name.
    """
    if name not in _VARIANTS:
        raise ConfigError(
            f"model.attention.variant: unknown variant {name!r}{_nearest(str(name), _VARIANTS)}"
        )
    return _VARIANTS[name]


def attention_class(name: str) -> type[Attention]:
    """The module class of a variant; imports its file (and no other variant's).

    Raises:
        ConfigError: no variant of that name.
    """
    module, _, attribute = variant_location(name).partition(":")
    found: type[Attention] = getattr(import_module(module), attribute)
    return found


def configure(options: dict[str, Any], d_model: int) -> AttentionConfig:
    """Check ``model.attention`` and fill in what follows from ``d_model``.

    Args:
        options: The mapping as written in the configuration; ``variant`` is required.
        d_model: Width of the residual stream, in dimensions.

    Returns:
        The variant's own config with ``num_heads`` and ``num_kv_heads`` as numbers and
        ``head_dim_multiplier`` multiplied into ``head_dim``.

    Raises:
        ConfigError: naming ``model.attention.<key>``, what was found, and the nearest name.
    """
    if "variant" not in options:
        raise ConfigError(
            f"model.attention.variant: missing; choose one of {', '.join(_VARIANTS)}"
        )
    kind = attention_class(options["variant"]).config_class
    try:
        config = kind.model_validate(options)
    except ValidationError as error:
        raise ConfigError(_describe(error, kind)) from None
    return _resolve(config, d_model)


def _resolve(config: AttentionConfig, d_model: int) -> AttentionConfig:
    config = config.model_copy(
        update={"head_dim": config.head_dim * config.head_dim_multiplier, "head_dim_multiplier": 1}
    )
    width = config.value_dim
    if config.num_heads is None and d_model % width:
        fitting = [size for size in range(1, d_model + 1) if d_model % size == 0]
        near = sorted(fitting, key=lambda size: abs(size - width))[:3]
        raise ConfigError(
            f"model.attention.head_dim: heads of width {width} do not fill d_model {d_model}; "
            f"set model.attention.num_heads, or take a width that divides it (nearest: "
            f"{', '.join(map(str, sorted(near)))})"
        )
    num_heads = config.num_heads or d_model // width
    num_kv_heads = config.num_kv_heads or num_heads
    if num_heads % num_kv_heads:
        allowed = [size for size in range(1, num_heads + 1) if num_heads % size == 0]
        raise ConfigError(
            f"model.attention.num_kv_heads: {num_kv_heads} does not divide num_heads {num_heads}; "
            f"allowed: {', '.join(map(str, allowed))}"
        )
    return config.model_copy(update={"num_heads": num_heads, "num_kv_heads": num_kv_heads})


def _describe(error: ValidationError, kind: type[AttentionConfig]) -> str:
    """All complaints of pydantic as one line."""
    parts = []
    for problem in error.errors():
        key = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            parts.append(f"model.attention.{key}: unknown key{_nearest(key, kind.model_fields)}")
        else:
            parts.append(f"model.attention.{key}: {problem['msg']}, got {problem['input']!r}")
    return "; ".join(parts)


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"; {hint}known: {', '.join(names)}"
