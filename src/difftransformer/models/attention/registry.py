"""The variants by name. Lazy: the file of a variant is imported only when it is selected.

Adding a variant: write ``models/attention/<name>.py`` with an `Attention` subclass, and one line
here; docs/adding_a_variant.md shows it. Everything else (configuration, checkpoints, export,
contract tests, tables) follows.
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
    """Where a variant is, and whether all of it is published."""

    location: str
    """``module:Class`` below this package."""
    deviation_from_paper: str | None = None
    """What its source leaves open, and what ours does there; tables and reports say so."""
    upstream: str | None = None
    """Model type of transformers' own that a whole model of it is."""
    has_head_norm: bool | None = None
    """Whether it norms its heads, where no setting `norm` says so; None: tables say nothing."""


DEFAULT_VARIANT = "diff_v1"
"""What a config made by transformers' names has where it names no variant."""

_VARIANTS = {
    "softmax": Variant("softmax:SoftmaxAttention", upstream="llama"),
    "diff_v1": Variant("diff_v1:DifferentialAttention", upstream="diffllama"),
    "diff_v2": Variant("diff_v2:DifferentialAttentionV2", has_head_norm=False),
    "gpt_oss_sink": Variant("gpt_oss_sink:SinkAttention", has_head_norm=False),
    "softmax_off_by_one": Variant("softmax_off_by_one:OffByOneAttention", has_head_norm=False),
    "gated": Variant("gated:GatedAttention", has_head_norm=False),
    "dint": Variant(
        "dint:DintAttention",
        "the source's mean over all rows would show a decoder what follows, so ours runs over the "
        "rows up to the query's own; all else is V1's",
    ),
    "shared_diff": Variant(
        "shared_diff:SharedDiffAttention",
        "only the idea could be read of the source, a shared base with low-rank updates; rank, "
        "initial values and exact factors are ours",
    ),
    "tda": Variant(
        "tda:ThresholdDifferentialAttention",
        "the published kernel has the map alone; head layout, the learned lambda, the fixed beta "
        "and the headwise norm are ours",
    ),
    "grouped_diff": Variant(
        "grouped_diff:GroupedDifferentialAttention",
        "the paper's summary alone could be read; the layer is that of its authors' code, with one "
        "noise head to each key/value head as in Motif-2-12.7B, and V1's lambda_init by depth",
    ),
    "dex_s": Variant(
        "dex_s:DexAttention",
        "the source says no more than that Dex is attached from the beginning; that all heads are "
        "changed and that lambda is learned without annealing are ours",
        has_head_norm=False,
    ),
}
VARIANT_BY_HF_TYPE = {
    one.upstream: name for name, one in _VARIANTS.items() if one.upstream is not None
}
"""Variant of each upstream model type that is one of ours."""


def variants() -> tuple[str, ...]:
    """Names of all variants, in the order of the registry; imports none of them."""
    return tuple(_VARIANTS)


def variant_location(name: str) -> str:
    """``module:Class`` of a variant, without importing it.

    Raises:
        ConfigError: no variant of that name.
    """
    return f"{__package__}.{_variant(name).location}"


def deviation_from_paper(name: str) -> str | None:
    """What is ours in a variant whose source leaves something open; None where nothing is.

    Raises:
        ConfigError: no variant of that name.
    """
    return _variant(name).deviation_from_paper


def has_head_norm(options: AttentionConfig) -> bool | None:
    """Whether attention norms its heads, by its settings or its variant; None: neither says so."""
    found: bool | None = getattr(options, "norm", _variant(options.variant).has_head_norm)
    return found


def _variant(name: str, place: str = "model.attention.variant") -> Variant:
    found: Variant = lookup(_VARIANTS, name, "variant", place)
    return found


def attention_class(name: str) -> type[Attention]:
    """Return the module class of a variant; imports its file (and no other variant's).

    Raises:
        ConfigError: no variant of that name, or its line here names no class of its file.
    """
    module, _, attribute = variant_location(name).partition(":")
    place, file = f"models/attention/registry.py: {name}", f"{module.rpartition('.')[2]}.py"
    try:
        classes = vars(import_module(module))
    except ModuleNotFoundError as error:
        if error.name != module:  # something that the file imports
            raise
        raise ConfigError(f"{place}: there is no {file} beside it; write it, see {_PAGE}") from None
    except SyntaxError as error:
        raise ConfigError(
            f"{error.filename}:{error.lineno}: not valid Python: {error.msg}"
        ) from None
    found: type[Attention] = lookup(
        {n: one for n, one in classes.items() if isinstance(one, type) and n[0] != "_"},
        attribute, f"class of {file}", place,
    )  # fmt: skip
    if not hasattr(found, "config_class"):
        raise ConfigError(
            f"{place}: {attribute} of {file} is no Attention with a config_class; see {_PAGE}"
        )
    return found


def options_class(options: Mapping[str, Any], where: str) -> type[AttentionConfig]:
    """Return the class of a variant's options; imports its file and no other variant's.

    Raises:
        ConfigError: ``options`` have no variant, or an unknown one.
    """
    if not isinstance(options, Mapping):
        raise ConfigError(f"{where}: needs a mapping of keys, got {options!r}")
    if "variant" not in options:
        raise ConfigError(f"{where}.variant: missing; choose one of {', '.join(_VARIANTS)}")
    _variant(options["variant"], f"{where}.variant")
    return attention_class(options["variant"]).config_class


def configure(
    options: Mapping[str, Any] | AttentionConfig, d_model: int, where: str = "model.attention"
) -> AttentionConfig:
    """Check the attention settings and fill in what follows from ``d_model``.

    Args:
        options: The variant's config, or the mapping that it is read from.
        d_model: Width of the residual stream, in dimensions.
        where: File and key path that errors name.

    Returns:
        The variant's own config with ``num_heads`` and ``num_kv_heads`` as numbers and all factors
        multiplied in, which are 1 afterwards.

    Raises:
        ConfigError: naming the key, what was found, what is allowed and the nearest name.
    """
    if isinstance(options, AttentionConfig):
        config = options
    else:
        config = options_class(options, where).read(options, where)
    head_dim = config.head_dim * config.head_dim_multiplier
    config = replace(config, head_dim=head_dim, head_dim_multiplier=1)
    width = config.value_dim
    if config.num_heads is None and d_model % width:
        raise ConfigError(
            f"{where}.head_dim: output heads of width {width} do not fill d_model {d_model}; take "
            f"a width that divides it (nearest: {_near(d_model, width)}), or set num_heads"
        )
    num_heads = config.num_heads or d_model // width
    if not (num_kv_heads := config.num_kv_heads):
        _require_divisor(config.heads_per_kv_head, num_heads, f"{where}.heads_per_kv_head")
        num_kv_heads = num_heads // config.heads_per_kv_head
    factor = config.num_heads_multiplier
    if (num_heads * factor) % 1:
        raise ConfigError(
            f"{where}.num_heads_multiplier: {factor:g} times {num_heads} heads is no whole number; "
            f"take a factor that makes one, or set num_heads"
        )
    num_heads = int(num_heads * factor)
    _require_divisor(num_kv_heads, num_heads, f"{where}.num_kv_heads")
    return replace(
        config, num_heads=num_heads, num_kv_heads=num_kv_heads, num_heads_multiplier=1,
        heads_per_kv_head=1,
    )  # fmt: skip


def _require_divisor(found: int, num_heads: int, place: str) -> None:
    if num_heads % found:
        raise ConfigError(
            f"{place}: {found} does not divide num_heads {num_heads}; nearest that do: "
            f"{_near(num_heads, found)}"
        )


def _near(number: int, wanted: int) -> str:
    """Return the divisors of ``number`` nearest to ``wanted``, as text."""
    divisors = [size for size in range(1, number + 1) if number % size == 0]
    return ", ".join(map(str, sorted(sorted(divisors, key=lambda size: abs(size - wanted))[:3])))
