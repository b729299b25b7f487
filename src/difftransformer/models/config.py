"""Model settings: frozen dataclasses of the standard library that validate their values.

Without pydantic, so a layer can be used with torch alone. The pipeline's configuration reads the
same classes with pydantic, from field types and the bounds and documentation of `setting`.
"""

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from difftransformer.errors import ConfigError, nearest

MODEL_TYPE = "difftransformer"
"""Value of ``model_type`` in the config.json of our models."""
LAMBDA = "lambda"
"""Name of the metric for lambda, the factor of subtracted attention maps, per layer."""


def layer_metric(name: str, layer: int) -> str:
    """Return the name under which metric ``name`` of one layer is logged; layers count from 0."""
    return f"{name}_l{layer}"


def lambda_metric(layer: int) -> str:
    """Return the name under which the lambda of one layer is logged; layers count from 0."""
    return layer_metric(LAMBDA, layer)


def setting(
    default: Any = MISSING,
    *,
    meaning: str,
    unit: str | None = None,
    source: str | None = None,
    holds: Iterable[str] = (),
    **bounds: float,
) -> Any:
    """Declare a field of an `Options` dataclass together with its documentation.

    Args:
        default: Value if the key is left out; without a default the key is required.
        meaning: One sentence on what the setting does.
        unit: Unit of the value, such as "tokens"; None for names and switches.
        source: Source of the default or the definition (paper section, equation).
        holds: Keys of a mapping that is parsed later, for "did you mean" hints.
        **bounds: Keys of `_BOUNDS`, such as ``gt=0``.
    """
    return field(default=default, metadata=setting_metadata(meaning, unit, source, holds) | bounds)


def setting_metadata(
    meaning: str, unit: str | None, source: str | None, holds: Iterable[str]
) -> dict[str, Any]:
    """Return a setting's documentation as pydantic metadata; arguments as for `setting`."""
    schema = {"unit": unit, "source": source, "holds": list(holds)}
    schema = {key: value for key, value in schema.items() if value}
    return {"description": meaning, "json_schema_extra": schema or None}


_BOUNDS = {
    "gt": (operator.gt, "above"),
    "ge": (operator.ge, "of at least"),
    "lt": (operator.lt, "below"),
    "below": (operator.lt, "below"),  # for a number or a name, which pydantic's `lt` rejects
    "le": (operator.le, "of at most"),
    "multiple_of": (lambda value, factor: value % factor == 0, "that is a multiple of"),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """A frozen group of settings; the constructor checks the type and bounds of each value.

    Raises:
        ConfigError: A value is invalid; the message names key, value and allowed values.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Let pydantic accept a mapping, although its values are strict."""
        return {**handler(source), "strict": False}

    def __post_init__(self) -> None:
        types = _types(type(self))  # type: ignore[arg-type]  # a class can be hashed
        for option in fields(self):
            name, value = option.name, getattr(self, option.name)
            if not _matches_type(value, types[name]):
                raise ConfigError(f"{name}: needs {_describe_type(types[name])}, got {value!r}")
            for bound, (holds, words) in _BOUNDS.items():
                limit = option.metadata.get(bound)
                is_number = isinstance(value, int | float)
                if limit is not None and is_number and not holds(value, limit):
                    raise ConfigError(f"{name}: needs a number {words} {limit}, got {value!r}")

    @classmethod
    def from_dict(cls, values: Any, location: str) -> Self:
        """Return the options given by a mapping of keys to values, validated.

        Args:
            values: Keys and values, as read from JSON.
            location: File and key path for error messages.

        Raises:
            ConfigError: An unknown key, with the nearest name; a missing key; a value of another
                type or out of bounds.
        """
        if not isinstance(values, Mapping):
            raise ConfigError(f"{location}: needs a mapping of keys, got {values!r}")
        names = cls.names()
        for name in values:
            if name not in names:
                raise ConfigError(f"{location}: {name}: unknown key{nearest(name, names)}")
        for option in fields(cls):
            if option.default is MISSING and option.name not in values:
                raise ConfigError(f"{location}: {option.name}: required key is missing")
        try:
            return cls(**values)
        except ConfigError as error:
            raise ConfigError(f"{location}: {error}") from None

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all settings of this class."""
        return tuple(option.name for option in fields(cls))


@cache
def _types(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


_WORDS = {
    bool: "true or false",
    dict: "a mapping of keys",
    float: "a finite number",
    int: "a whole number",
    str: "text",
    type(None): "null",
}


def _matches_type(value: Any, annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return any(_matches_type(value, option) for option in get_args(annotation))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(annotation)
    if annotation is AttentionConfig:
        return True  # `configure` checks it
    if annotation is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is (origin or annotation)


def _describe_type(annotation: Any) -> str:
    """Return a type in words, for error messages."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return " or ".join(map(_describe_type, get_args(annotation)))
    if origin is Literal:
        return " or ".join(map(repr, get_args(annotation)))
    return _WORDS[origin or annotation]


@dataclass(frozen=True, kw_only=True)
class AttentionConfig(Options):
    """Settings shared by all attention variants; each variant subclasses it in its own file."""

    variant: str = setting(meaning="Name of the variant in models/attention/registry.py.")
    num_heads: int | None = setting(
        None,
        meaning="Output heads of the layer (for DIFF: differential heads, each with two softmax "
        "maps). Left out: as many as fit d_model.",
        unit="heads",
        source="DIFF paper, section 2.1 (h = d_model / 2d)",
        gt=0,
    )
    num_kv_heads: int | None = setting(
        None,
        meaning="Value heads that the output heads share in groups (GQA); each has one key head "
        "per softmax map. Left out: one per output head (MHA).",
        unit="heads",
        source="github microsoft/unilm Diff-Transformer/multihead_flashdiff_1.py",
        gt=0,
    )
    head_dim: int = setting(
        meaning="Query and key dimension d of one softmax map; even, as RoPE needs.",
        unit="dimensions",
        source="DIFF paper, section 3.1 (128)",
        gt=0,
        le=2**17,
        multiple_of=2,
    )
    head_dim_multiplier: int = setting(
        1,
        meaning="Factor of head_dim, so that a run can have heads twice as wide at every scale.",
        source="DIFF paper, table 6 (row with 8 heads of 256)",
        gt=0,
    )

    num_heads_multiplier: float = setting(
        1,
        meaning="Factor of the number of output heads, not of key/value heads, so that a run can "
        "have 1.5 times the heads at every scale.",
        source="Differential Transformer V2 (post), design ablation 4 (1.5h heads)",
        gt=0,
    )
    heads_per_kv_head: int = setting(
        1,
        meaning="Output heads per key/value head if num_kv_heads is left out, counted before "
        "num_heads_multiplier.",
        unit="heads",
        gt=0,
    )

    @property
    def value_dim(self) -> int:
        """Width of one head's output, before the output projection."""
        return self.head_dim

    @property
    def output_heads(self) -> int:
        """Number of output heads: `num_heads` of a resolved config."""
        assert self.num_heads is not None, "attention config was not resolved by configure()"
        return self.num_heads

    @property
    def kv_heads(self) -> int:
        """Number of key/value heads: `num_kv_heads` of a resolved config."""
        assert self.num_kv_heads is not None, "attention config was not resolved by configure()"
        return self.num_kv_heads


class _ByVariant:
    """Type annotation by which pydantic leaves the attention options to `ModelConfig`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {"type": "any"}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"type": "object", "additionalProperties": True}


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Options):
    """Settings of a decoder: pre-RMSNorm, SwiGLU, rotary positions, no biases, any attention."""

    vocab_size: int = setting(meaning="Number of token ids.", unit="tokens", gt=0, le=2**24)
    d_model: int = setting(
        meaning="Width of the residual stream.",
        unit="dimensions",
        source="DIFF paper, table 10",
        gt=0,
        le=2**17,
    )
    num_layers: int = setting(
        meaning="Number of decoder blocks.",
        unit="layers",
        source="DIFF paper, table 10",
        gt=0,
        le=10_000,
    )
    ffn_dim: int = setting(
        meaning="Inner width of the SwiGLU feed-forward.",
        unit="dimensions",
        source="DIFF paper, section 3.2 (8/3 d_model)",
        gt=0,
        le=2**20,
    )
    attention: Annotated[AttentionConfig, _ByVariant()] = setting(
        meaning="Variant and its options, checked by models.attention.registry.configure.",
        holds=AttentionConfig.names(),
    )
    max_positions: int = setting(
        meaning="Longest sequence that the model accepts.", unit="positions", gt=0, le=2**27
    )
    rope_theta: float = setting(
        10000.0,
        meaning="Base of the rotary frequencies.",
        source="the paper does not state it; 10000 is RoFormer's and the authors' default",
        gt=0,
    )
    norm_eps: float = setting(
        1e-5,
        meaning="Added to the mean square in every RMSNorm.",
        source="github microsoft/unilm Diff-Transformer",
        gt=0,
    )
    residual_in_fp32: bool = setting(
        True,
        meaning="Whether the residual stream is in float32 under mixed precision (`precision: "
        "bf16`). Otherwise it is in bf16, which halves the bytes that norms and sums move. "
        "Fine-tuning always has it in float32.",
    )
    tie_embeddings: bool = setting(
        False, meaning="Use the embedding matrix as the output projection."
    )
    initializer: Literal["fan_in", "normal"] = setting(
        "fan_in",
        meaning="fan_in: std = 1/sqrt(inputs of the matrix); normal: std = init_std. In both, "
        "projections into the residual stream are divided by sqrt(2 num_layers).",
        source="the paper states none; fan_in lowered both models' loss (our evaluation)",
    )
    init_std: float = setting(
        0.02, meaning="Standard deviation of the `normal` initializer.", source="GPT-2", gt=0
    )
    embedding_std: float = setting(
        1.0,
        meaning="Standard deviation of the token embeddings.",
        source="for fan_in; with normal use the value of init_std",
        gt=0,
    )

    def __post_init__(self) -> None:
        """Parse the attention options by variant and resolve the head counts."""
        from difftransformer.models.attention.registry import configure

        super().__post_init__()
        object.__setattr__(self, "attention", configure(self.attention, self.d_model))
