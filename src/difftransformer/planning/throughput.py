"""What the throughput job times: every row's attention in models of the scale's shapes."""

from collections.abc import Sequence
from typing import Any

from difftransformer.config.inheritance import Layers
from difftransformer.config.model import ModelConfig
from difftransformer.config.resolve import Catalogue
from difftransformer.config.throughput import ThroughputSlice
from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError
from difftransformer.models.attention.registry import configure


def throughput_slice(catalogue: Catalogue, rows: Sequence[str]) -> ThroughputSlice:
    """Resolve the models of all rows at all shapes.

    Raises:
        ConfigError: A shape that the model of a row cannot have.
    """
    config = catalogue.scale.throughput
    assert config is not None, catalogue.scale_file
    return ThroughputSlice(
        scale=catalogue.project.scale,
        config=config,
        models={
            row: {shape: _model(catalogue, row, shape) for shape in config.shapes} for row in rows
        },
    )


def _model(catalogue: Catalogue, row: str, shape: str) -> ModelConfig:
    config = catalogue.scale.throughput
    assert config is not None
    sizes = config.shapes[shape]
    place = f"{catalogue.scale_file}: throughput.shapes.{shape}"
    own: dict[str, Any] = catalogue.run(row).model.model_dump(mode="json")
    layers = Layers().add(own, f"runs.yaml: runs.{row}").add(sizes.model, f"{place}.model")
    layers.add({"max_positions": sizes.seq_len}, place)
    model: ModelConfig = validate(ModelConfig, layers.values, f"{place}.model", layers.origin)
    try:
        configure(model.attention, model.d_model)
    except ConfigError as error:
        raise ConfigError(f"{place}: row {row}: {error}") from None
    return model
