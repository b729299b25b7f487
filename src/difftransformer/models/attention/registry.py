"""Registry of the attention variants by name; a variant's file is imported when it is selected.

To add a variant, write ``models/attention/<name>.py`` with an `Attention` subclass and add one line
to `_VARIANTS` (see docs/adding_a_variant.md). Configuration, checkpoints, export, contract tests
and tables need no change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from difftransformer.errors import ConfigError, lookup
from difftransformer.models.config import AttentionConfig

if TYPE_CHECKING:
    from difftransformer.models.attention.base import Attention


_PAGE = "docs/adding_a_variant.md"


class Variant(NamedTuple):
    """A registry entry: the location of a variant's class, and facts about the variant."""

    location: str
    """``module:Class`` below this package."""
    deviation_from_paper: str | None = None
    """Points that the variant's source leaves open, and our choices; for tables and reports."""
    hf_model_type: str | None = None
    """``model_type`` of the transformers model that has this attention."""
    has_head_norm: bool | None = None
    """Whether head outputs are normalized, if there is no setting `norm`; None: not stated."""


DEFAULT_VARIANT = "diff_v1"
"""Variant of a `DiffTransformerConfig` that names none."""

_VARIANTS = {
    "softmax": Variant("softmax:SoftmaxAttention", hf_model_type="llama"),
    "diff_v1": Variant("diff_v1:DifferentialAttention", hf_model_type="diffllama"),
    "diff_v2": Variant("diff_v2:DifferentialAttentionV2", has_head_norm=False),
    "gpt_oss_sink": Variant("gpt_oss_sink:SinkAttention", has_head_norm=False),
    "softmax_off_by_one": Variant("softmax_off_by_one:OffByOneAttention", has_head_norm=False),
    "gated": Variant("gated:GatedAttention", has_head_norm=False),
    "dint": Variant(
        "dint:DintAttention",
        "the source averages over all rows, which would let a decoder see future tokens; ours "
        "averages over the rows up to the query; all else is as in V1",
    ),
    "shared_diff": Variant(
        "shared_diff:SharedDiffAttention",
        "of the source only the idea was available, a shared base with low-rank updates; rank, "
        "initial values and exact factors are ours",
    ),
    "tda": Variant(
        "tda:ThresholdDifferentialAttention",
        "the published kernel has only the attention map; head layout, the learned lambda, the "
        "fixed beta and the per-head norm are ours",
    ),
    "grouped_diff": Variant(
        "grouped_diff:GroupedDifferentialAttention",
        "of the paper only the summary was available; the layer follows its authors' code, with "
        "one noise head per key/value head as in Motif-2-12.7B, and V1's lambda_init by depth",
    ),
    "dex_s": Variant(
        "dex_s:DexAttention",
        "the source says only that Dex is attached from the beginning; changing all heads and "
        "learning lambda without annealing are ours",
        has_head_norm=False,
    ),
}
VARIANT_BY_HF_TYPE = {
    variant.hf_model_type: name
    for name, variant in _VARIANTS.items()
    if variant.hf_model_type is not None
}
"""Our variant of each transformers ``model_type``."""


def variants() -> tuple[str, ...]:
    """Return the names of all variants, in registry order, without importing any."""
    return tuple(_VARIANTS)


def variant_location(name: str) -> str:
    """Return the location ``module:Class`` of a variant's class, without importing it.

    Raises:
        ConfigError: Unknown variant.
    """
    return f"{__package__}.{_variant(name).location}"


def deviation_from_paper(name: str) -> str | None:
    """Return how a variant resolves points that its source leaves open; None if there are none.

    Raises:
        ConfigError: Unknown variant.
    """
    return _variant(name).deviation_from_paper


def has_head_norm(options: AttentionConfig) -> bool | None:
    """Return whether head outputs are normalized, from the settings or else the variant's entry.

    None if neither states it.
    """
    norm: bool | None = getattr(options, "norm", _variant(options.variant).has_head_norm)
    return norm


def _variant(name: str, location: str = "model.attention.variant") -> Variant:
    variant: Variant = lookup(_VARIANTS, name, "variant", location)
    return variant


def attention_class(name: str) -> type[Attention]:
    """Return the attention class (a torch module) of a variant, importing only its file.

    Raises:
        ConfigError: Unknown variant, or its registry line names no class of its file.
    """
    module, _, class_name = variant_location(name).partition(":")
    location, file = f"models/attention/registry.py: {name}", f"{module.rpartition('.')[2]}.py"
    try:
        members = vars(import_module(module))
    except ModuleNotFoundError as error:
        if error.name != module:  # an import within the file
            raise
        raise ConfigError(
            f"{location}: there is no {file} beside it; write it, see {_PAGE}"
        ) from None
    except SyntaxError as error:
        raise ConfigError(
            f"{error.filename}:{error.lineno}: not valid Python: {error.msg}"
        ) from None
    attention: type[Attention] = lookup(
        {key: value for key, value in members.items() if isinstance(value, type) and key[0] != "_"},
        class_name, f"class of {file}", location,
    )  # fmt: skip
    if not hasattr(attention, "config_class"):
        raise ConfigError(
            f"{location}: {class_name} of {file} is not an Attention with a config_class; "
            f"see {_PAGE}"
        )
    return attention


def options_class(options: Mapping[str, Any], location: str) -> type[AttentionConfig]:
    """Return the options class of the variant that ``options`` name, importing only its file.

    Raises:
        ConfigError: ``options`` name no variant, or an unknown one.
    """
    if not isinstance(options, Mapping):
        raise ConfigError(f"{location}: needs a mapping of keys, got {options!r}")
    if "variant" not in options:
        raise ConfigError(f"{location}.variant: missing; choose one of {', '.join(_VARIANTS)}")
    _variant(options["variant"], f"{location}.variant")
    return attention_class(options["variant"]).config_class


def configure(
    options: Mapping[str, Any] | AttentionConfig, d_model: int, location: str = "model.attention"
) -> AttentionConfig:
    """Check the attention settings and fill in those that follow from ``d_model``.

    Args:
        options: The variant's config, or a mapping of its keys.
        d_model: Width of the residual stream.
        location: File and key path for error messages.

    Returns:
        The variant's config with ``num_heads`` and ``num_kv_heads`` as numbers; multipliers are
        applied and are 1.

    Raises:
        ConfigError: A setting is invalid; the message names the key, its value, the allowed values
            and the nearest name.
    """
    if isinstance(options, AttentionConfig):
        config = options
    else:
        config = options_class(options, location).from_dict(options, location)
    head_dim = config.head_dim * config.head_dim_multiplier
    config = replace(config, head_dim=head_dim, head_dim_multiplier=1)
    width = config.value_dim
    if config.num_heads is None and d_model % width:
        raise ConfigError(
            f"{location}.head_dim: output heads of width {width} do not fill d_model {d_model}; "
            f"take a width that divides it (nearest: {_nearest_divisors(d_model, width)}), or set "
            "num_heads"
        )
    num_heads = config.num_heads or d_model // width
    if not (num_kv_heads := config.num_kv_heads):
        _require_divisor(config.heads_per_kv_head, num_heads, f"{location}.heads_per_kv_head")
        num_kv_heads = num_heads // config.heads_per_kv_head
    multiplier = config.num_heads_multiplier
    if (num_heads * multiplier) % 1:
        raise ConfigError(
            f"{location}.num_heads_multiplier: {multiplier:g} times {num_heads} heads is not a "
            "whole number; take another multiplier, or set num_heads"
        )
    num_heads = int(num_heads * multiplier)
    _require_divisor(num_kv_heads, num_heads, f"{location}.num_kv_heads")
    return replace(
        config, num_heads=num_heads, num_kv_heads=num_kv_heads, num_heads_multiplier=1,
        heads_per_kv_head=1,
    )  # fmt: skip


def _require_divisor(divisor: int, num_heads: int, location: str) -> None:
    if num_heads % divisor:
        raise ConfigError(
            f"{location}: {divisor} does not divide num_heads {num_heads}; nearest that do: "
            f"{_nearest_divisors(num_heads, divisor)}"
        )


def _nearest_divisors(number: int, target: int) -> str:
    """Return the three divisors of ``number`` nearest to ``target``, as text."""
    divisors = [size for size in range(1, number + 1) if number % size == 0]
    return ", ".join(map(str, sorted(sorted(divisors, key=lambda size: abs(size - target))[:3])))
