"""Models that are timed: a run's own, with the sizes that the scale gives them."""

from collections.abc import Mapping
from typing import Any

from difftransformer.config.inheritance import Layers
from difftransformer.config.model import ModelConfig
from difftransformer.config.resolve import Catalogue
from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError
from difftransformer.models.attention.registry import configure


def timed_model(
    catalogue: Catalogue, row: str, changes: Mapping[str, Any], max_positions: int, key: str
) -> ModelConfig:
    """Return the model of a row with what the scale's file changes under ``key``.

    Raises:
        ConfigError: Sizes that the model cannot have.
    """
    place = f"{catalogue.scale_file}: {key}"
    own = catalogue.run(row).model.model_dump(mode="json")
    layers = Layers().add(own, f"runs.yaml: runs.{row}").add(dict(changes), f"{place}.model")
    layers.add({"max_positions": max_positions}, place)
    model: ModelConfig = validate(ModelConfig, layers.values, f"{place}.model", layers.origin)
    try:
        configure(model.attention, model.d_model)
    except ConfigError as error:
        raise ConfigError(f"{place}: row {row}: {error}") from None
    return model
