"""The transformers config of our models: `ModelConfig` under the names of transformers.

Settings are stored once, under the key `model`; attributes with transformers' names read and write
them there.
"""

from difflib import get_close_matches
from operator import attrgetter
from typing import Any, ClassVar

from transformers.configuration_utils import PreTrainedConfig
from transformers.generation.configuration_utils import GenerationConfig

from difftransformer.errors import CheckpointError, ConfigError
from difftransformer.models.attention.registry import DEFAULT_VARIANT, attention_class
from difftransformer.models.config import MODEL_TYPE, ModelConfig

_HF_KEYS = {
    *("attn_implementation", "auto_map", "model_type", "quantization_config"),
    *("sep_token_id", "task_specific_params"),
}
"""Keys that transformers stores in configs besides its settings."""
DEFAULT_POSITIONS = 2048
"""Default max_positions of configs that are given by transformers' names."""


class _Setting:
    """Descriptor of a setting under transformers' name.

    Args:
        path: Keys below `model`.
        multiplier: Key, next to the last of them, of a multiplier that the value includes.
    """

    def __init__(self, *path: str, multiplier: str = "") -> None:
        self._path, self._multiplier = path, multiplier

    def __get__(self, config: "DiffTransformerConfig | None", owner: type) -> Any:
        if config is None:
            return self
        return attrgetter(".".join(self._path))(config.model_config())

    def __set__(self, config: "DiffTransformerConfig", value: Any) -> None:
        self.write(settings := _plain(config.model or {}), value)
        config.model = settings

    def write(self, settings: dict[str, Any], value: Any) -> None:
        """Write a value into the settings of a model."""
        for key in self._path[:-1]:
            settings = settings.setdefault(key, {})
        settings[self._path[-1]] = _plain(value)
        settings.pop(self._multiplier, None)


class _Fixed:
    """Descriptor of a setting of transformers' Llama that is fixed in all our models."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, config: "DiffTransformerConfig | None", owner: type) -> Any:
        return self._value

    def __set__(self, config: "DiffTransformerConfig", value: Any) -> None:
        if value != self._value:
            raise ConfigError(
                f"DiffTransformerConfig: {self._name} is always {self._value!r} in our models, got "
                f"{value!r}: leave it out"
            )


class DiffTransformerConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]
    """A transformers config with our `ModelConfig` under the key `model`.

    Pass `model`, or transformers' names: ``DiffTransformerConfig(vocab_size=32000,
    hidden_size=512, num_hidden_layers=8, num_attention_heads=4)``. Names override keys of `model`.
    Defaults: attention V1, heads that fill the width, a feed-forward of 8/3 of the width, rounded
    up to a multiple of 8, and 2048 positions.

    Attributes:
        model: Keys of `ModelConfig`.
        num_attention_heads: Output heads; a differential head counts once.
        num_key_value_heads: Value heads.
        head_dim: Query and key dimension of one softmax map.

    Raises:
        ConfigError: A setting of Llama that our models lack, or one of ours outside of `model`.
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
    num_attention_heads = _Setting("attention", "num_heads", multiplier="num_heads_multiplier")
    num_key_value_heads = _Setting("attention", "num_kv_heads", multiplier="heads_per_kv_head")
    head_dim = _Setting("attention", "head_dim", multiplier="head_dim_multiplier")
    max_position_embeddings = _Setting("max_positions")
    rms_norm_eps = _Setting("norm_eps")
    rope_theta = _Setting("rope_theta")
    tie_word_embeddings = _Setting("tie_embeddings")
    hidden_act = _Fixed("silu")
    attention_bias = _Fixed(False)
    attention_dropout = _Fixed(0.0)
    mlp_bias = _Fixed(False)

    def __post_init__(self, **options: Any) -> None:
        """Write settings by transformers' names into `model`, and fill in defaults."""
        settings = None if self.model is None else _plain(self.model)
        if named := [name for name in _SETTINGS if options.get(name) is not None]:
            settings = settings or {}
            for name in named:
                _SETTINGS[name].write(settings, options.pop(name))
            _fill_defaults(settings)
        for name in _SETTINGS:
            options.pop(name, None)  # None: left out
        for name in ("rope_parameters", "rope_scaling"):
            if options.pop(name, None) is not None:
                raise ConfigError(f"DiffTransformerConfig: {name}: pass only rope_theta")
        _reject_outside_model(options, settings or {})
        _reject_unknown(options)
        self.model = settings
        super().__post_init__(**options)  # type: ignore[no-untyped-call]

    def model_config(self) -> ModelConfig:
        """Return the `ModelConfig` under the key `model`.

        Raises:
            CheckpointError: The config has no such settings.
            ConfigError: The settings are invalid.
        """
        if self.model is None:
            raise CheckpointError(
                "config.json: no key `model`; pass a folder written by difftransformer"
            )
        return ModelConfig.from_dict(_plain(self.model), "config.json: model")

    def to_dict(self) -> dict[str, Any]:
        """Return all settings, ours repeated under transformers' names, which peft reads."""
        names: dict[str, Any] = {}
        if self.model is not None:
            names = {name: getattr(self, name) for name in _SETTINGS}
        return super().to_dict() | names

    def to_diff_dict(self) -> dict[str, Any]:
        """Return the content of config.json, in which each setting occurs once."""
        content = super().to_diff_dict()
        return {name: value for name, value in content.items() if name not in _SETTINGS}


_SETTINGS = {
    name: attribute
    for name, attribute in vars(DiffTransformerConfig).items()
    if isinstance(attribute, _Setting)
}


def _reject_outside_model(options: dict[str, Any], settings: dict[str, Any]) -> None:
    """Raise for settings of `model` passed outside of it: they would be stored but never read."""
    attention = settings.get("attention") or {}
    variant_config = attention_class(attention.get("variant", DEFAULT_VARIANT)).config_class
    for name, value in options.items():
        model: dict[str, Any] = {name: value}
        if name not in ModelConfig.names():
            model = {"attention": model}
        if name in ModelConfig.names() or name in variant_config.names():
            raise ConfigError(f"DiffTransformerConfig: {name}: pass model={model}")


def _reject_unknown(options: dict[str, Any]) -> None:
    """Raise for settings that no model here has: they would be stored but never read."""
    fixed = [
        name
        for name, attribute in vars(DiffTransformerConfig).items()
        if isinstance(attribute, _Fixed)
    ]
    supported = {*_SETTINGS, *fixed}
    names = supported | _HF_KEYS | vars(PreTrainedConfig).keys()
    names |= GenerationConfig._get_default_generation_params().keys()  # in older configs
    for name, value in options.items():
        if value is None or name.startswith("_") or name in names:
            continue
        match = next(iter(get_close_matches(name, supported, n=1, cutoff=0.8)), None)
        cure = f"did you mean '{match}'?" if match else "leave it out"
        raise ConfigError(
            f"DiffTransformerConfig: {name}: no model here has this setting, got {value!r}; {cure}"
        )


def _fill_defaults(settings: dict[str, Any]) -> None:
    """Fill in the settings that follow from others, and defaults."""
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
    variant_config = attention_class(variant).config_class
    maps = variant_config(variant=variant, head_dim=2).value_dim // 2
    if heads < 1 or width % (2 * maps * heads):
        raise ConfigError(
            f"DiffTransformerConfig: {heads} heads of {variant} do not fill hidden_size {width} "
            f"with an even head_dim; take a num_attention_heads that divides {width // (2 * maps)},"
            " or pass head_dim"
        )
    return width // (maps * heads)


def _plain(value: Any) -> Any:
    """Return a copy of settings with numpy numbers converted to Python's."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.item() if hasattr(value, "item") else value
