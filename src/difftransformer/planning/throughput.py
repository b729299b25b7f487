"""What the throughput job times: attention at the scale's shapes, and variants as they are."""

from collections.abc import Mapping, Sequence

from difftransformer.config.model import ModelConfig
from difftransformer.config.resolve import Catalogue
from difftransformer.config.throughput import VARIANTS, ThroughputSlice
from difftransformer.planning.timed_models import timed_model


def throughput_slice(
    catalogue: Catalogue, rows: Sequence[str], variants: Mapping[str, ModelConfig]
) -> ThroughputSlice:
    """Resolve the models of the rows of table 7 at all shapes, and add those of variants.

    Raises:
        ConfigError: A shape that the model of a row cannot have.
    """
    config = catalogue.scale.throughput
    assert config is not None, catalogue.scale_file
    models = {
        row: {
            name: timed_model(
                catalogue, row, shape.model, shape.seq_len, f"throughput.shapes.{name}"
            )
            for name, shape in config.shapes.items()
        }
        for row in rows
    }
    if config.variants is not None:
        length = {"max_positions": config.variants.seq_len}
        for row, model in variants.items():
            models.setdefault(row, {})[VARIANTS] = model.model_copy(update=length)
    return ThroughputSlice(scale=catalogue.project.scale, config=config, models=models)
