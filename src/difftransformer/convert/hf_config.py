"""The transformers config of our models: `ModelConfig`, by the names that its users and tools use.

Settings are stored once, under the key `model`; the names of transformers read and write them
there.
"""

from difflib import get_close_matches
from operator import attrgetter
from typing import Any, ClassVar

from transformers.configuration_utils import PreTrainedConfig
from transformers.generation.configuration_utils import GenerationConfig

from difftransformer.errors import CheckpointError, ConfigError
from difftransformer.models.attention.registry import DEFAULT_VARIANT, attention_class
from difftransformer.models.config import MODEL_TYPE, ModelConfig

_OF_TRANSFORMERS = {
    *("attn_implementation", "auto_map", "model_type", "quantization_config"),
    *("sep_token_id", "task_specific_params"),
}
"""Keys that transformers stores in configs besides its own settings."""
DEFAULT_POSITIONS = 2048
"""Longest context of a config that is made by transformers' names and does not say."""


class _Setting:
    """A setting by its name in transformers.

    Args:
        path: Keys of it below `model`.
        factor: Key beside it of a factor that the value contains.
    """

    def __init__(self, *path: str, factor: str = "") -> None:
        self._path, self._factor = path, factor

    def __get__(self, config: "DiffTransformerConfig | None", owner: type) -> Any:
        if config is None:
            return self
        return attrgetter(".".join(self._path))(config.model_config())

    def __set__(self, config: "DiffTransformerConfig", value: Any) -> None:
        self.write(settings := _plain(config.model or {}), value)
        config.model = settings

    def write(self, settings: dict[str, Any], value: Any) -> None:
        """Put a value into settings of a model."""
        for key in self._path[:-1]:
            settings = settings.setdefault(key, {})
        settings[self._path[-1]] = _plain(value)
        settings.pop(self._factor, None)


class _Fixed:
    """What all our models have in common and transformers' Llama can choose."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, config: "DiffTransformerConfig | None", owner: type) -> Any:
        return self._value

    def __set__(self, config: "DiffTransformerConfig", value: Any) -> None:
        if value != self._value:
            raise ConfigError(
                f"DiffTransformerConfig: {self._name} is {self._value!r} in every model here, got "
                f"{value!r}: leave it out"
            )


class DiffTransformerConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]
    """A transformers config that carries our `ModelConfig` under the key `model`.

    It is made of `model`, or of transformers' names: ``DiffTransformerConfig(vocab_size=32000,
    hidden_size=512, num_hidden_layers=8, num_attention_heads=4)``. Names overwrite keys of `model`;
    what both leave out is V1's attention, heads that fill the width, a feed-forward of 8/3 of the
    width, rounded up to a multiple of 8, and 2048 positions.

    Attributes:
        model: Keys of `ModelConfig`.
        num_attention_heads: Output heads: a differential head counts once.
        num_key_value_heads: Value heads.
        head_dim: Query and key dimension of one softmax map.

    Raises:
        ConfigError: A setting of Llama that our models do not have, or one of ours beside `model`.
    """

    model_type = MODEL_TYPE
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]
    has_no_defaults_at_init = True

    model: dict[str, Any] | None = None
    use_cache: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    vocab_size = _Setting("vocab_size")
    hidden_size = _Setting("d_model")
    intermediate_size = _Setting("ffn_dim")
    num_hidden_layers = _Setting("num_layers")
    num_attention_heads = _Setting("attention", "num_heads", factor="num_heads_multiplier")
    num_key_value_heads = _Setting("attention", "num_kv_heads", factor="heads_per_kv_head")
    head_dim = _Setting("attention", "head_dim", factor="head_dim_multiplier")
    max_position_embeddings = _Setting("max_positions")
    rms_norm_eps = _Setting("norm_eps")
    rope_theta = _Setting("rope_theta")
    tie_word_embeddings = _Setting("tie_embeddings")
    hidden_act = _Fixed("silu")
    attention_bias = _Fixed(False)
    attention_dropout = _Fixed(0.0)
    mlp_bias = _Fixed(False)

    def __post_init__(self, **options: Any) -> None:
        """Let names write into `model`, and fill in what they leave out."""
        settings = None if self.model is None else _plain(self.model)
        if named := [name for name in _SETTINGS if options.get(name) is not None]:
            settings = settings or {}
            for name in named:
                _SETTINGS[name].write(settings, options.pop(name))
            _complete(settings)
        for name in _SETTINGS:
            options.pop(name, None)  # None: left out
        for name in ("rope_parameters", "rope_scaling"):
            if options.pop(name, None) is not None:
                raise ConfigError(f"DiffTransformerConfig: {name}: give rope_theta alone")
        _require_below_model(options, settings or {})
        _refuse_unknown(options)
        self.model = settings
        super().__post_init__(**options)  # type: ignore[no-untyped-call]

    def model_config(self) -> ModelConfig:
        """Return the settings of the model.

        Raises:
            CheckpointError: If there are none.
            ConfigError: If they cannot be used.
        """
        if self.model is None:
            raise CheckpointError("config.json: no key `model`; name a folder of difftransformer")
        return ModelConfig.from_dict(_plain(self.model), "config.json: model")

    def to_dict(self) -> dict[str, Any]:
        """Return all settings, by the names of transformers as well, where peft looks for them."""
        names: dict[str, Any] = {}
        if self.model is not None:
            names = {name: getattr(self, name) for name in _SETTINGS}
        return super().to_dict() | names

    def to_diff_dict(self) -> dict[str, Any]:
        """Return what config.json holds: each setting once."""
        found = super().to_diff_dict()
        return {name: value for name, value in found.items() if name not in _SETTINGS}


_SETTINGS = {
    name: found
    for name, found in vars(DiffTransformerConfig).items()
    if isinstance(found, _Setting)
}


def _require_below_model(options: dict[str, Any], settings: dict[str, Any]) -> None:
    """Refuse settings of `model` passed next to it: they would be stored and never read."""
    attention = settings.get("attention") or {}
    kind = attention_class(attention.get("variant", DEFAULT_VARIANT)).config_class
    for name, value in options.items():
        own: dict[str, Any] = {name: value}
        if name not in ModelConfig.names():
            own = {"attention": own}
        if name in ModelConfig.names() or name in kind.names():
            raise ConfigError(f"DiffTransformerConfig: {name}: give model={own}")


def _refuse_unknown(options: dict[str, Any]) -> None:
    """Refuse settings that no model here has: they would be stored and never read."""
    fixed = [
        name
        for name, attribute in vars(DiffTransformerConfig).items()
        if isinstance(attribute, _Fixed)
    ]
    ours = {*_SETTINGS, *fixed}
    names = ours | _OF_TRANSFORMERS | vars(PreTrainedConfig).keys()
    names |= GenerationConfig._get_default_generation_params().keys()  # older configs hold them
    for name, value in options.items():
        if value is None or name.startswith("_") or name in names:
            continue
        likely = next(iter(get_close_matches(name, ours, n=1, cutoff=0.8)), None)
        cure = f"did you mean '{likely}'?" if likely else "leave it out"
        raise ConfigError(
            f"DiffTransformerConfig: {name}: no model here has this setting, got {value!r}; {cure}"
        )


def _complete(settings: dict[str, Any]) -> None:
    """Fill in what follows from the settings that are there, or is usual."""
    attention = settings.setdefault("attention", {})
    attention.setdefault("variant", DEFAULT_VARIANT)
    settings.setdefault("max_positions", DEFAULT_POSITIONS)
    width, heads = settings.get("d_model"), attention.get("num_heads")
    if isinstance(width, int):
        settings.setdefault("ffn_dim", -(-width // 3) * 8)
    if isinstance(width, int) and isinstance(heads, int) and "head_dim" not in attention:
        attention["head_dim"] = _head_dim(width, heads, attention["variant"])


def _head_dim(width: int, heads: int, variant: str) -> int:
    """Return the head_dim with which heads fill the width."""
    kind = attention_class(variant).config_class
    maps = kind(variant=variant, head_dim=2).value_dim // 2
    if heads < 1 or width % (2 * maps * heads):
        raise ConfigError(
            f"DiffTransformerConfig: {heads} heads of {variant} do not fill hidden_size {width} "
            f"with an even head_dim; take a num_attention_heads that divides {width // (2 * maps)},"
            " or give head_dim"
        )
    return width // (maps * heads)


def _plain(value: Any) -> Any:
    """Return a copy of settings in which numbers are Python's, not numpy's."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value.item() if hasattr(value, "item") else value
