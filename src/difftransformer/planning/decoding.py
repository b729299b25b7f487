"""What the decoding job times: every row with the sizes that the scale gives for it."""

from collections.abc import Sequence

from difftransformer.config.decoding import DecodingSlice
from difftransformer.config.inheritance import Layers
from difftransformer.config.model import ModelConfig
from difftransformer.config.resolve import Catalogue
from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError
from difftransformer.models.attention.registry import configure
from difftransformer.models.matching import match_ffn


def decoding_slice(catalogue: Catalogue, rows: Sequence[str]) -> DecodingSlice:
    """Resolve the models of all rows; those with a `match` keep the parameters of the first row.

    Raises:
        ConfigError: Sizes that the model of a row cannot have.
    """
    config = catalogue.scale.decoding
    assert config is not None, catalogue.scale_file
    models = {row: _model(catalogue, row) for row in rows}
    first = models[rows[0]]
    for row, model in models.items():
        entry = catalogue.match(row)
        if entry is not None:
            found = match_ffn(model, first, "parameters", entry.multiple_of, 1)
            models[row] = model.model_copy(update={"ffn_dim": found.ffn_dim})
    return DecodingSlice(scale=catalogue.project.scale, config=config, models=models)


def _model(catalogue: Catalogue, row: str) -> ModelConfig:
    config = catalogue.scale.decoding
    assert config is not None
    place = f"{catalogue.scale_file}: decoding"
    own = catalogue.run(row).model.model_dump(mode="json")
    layers = Layers().add(own, f"runs.yaml: runs.{row}").add(config.model, f"{place}.model")
    layers.add({"max_positions": max(config.contexts) + config.new_tokens}, place)
    model: ModelConfig = validate(ModelConfig, layers.values, f"{place}.model", layers.origin)
    try:
        configure(model.attention, model.d_model)
    except ConfigError as error:
        raise ConfigError(f"{place}: row {row}: {error}") from None
    return model
