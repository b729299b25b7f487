"""What the throughput job times: every row's attention in models of the scale's shapes."""

from collections.abc import Sequence

from difftransformer.config.resolve import Catalogue
from difftransformer.config.throughput import ThroughputSlice
from difftransformer.planning.timed_models import timed_model


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
            row: {
                name: timed_model(
                    catalogue, row, shape.model, shape.seq_len, f"throughput.shapes.{name}"
                )
                for name, shape in config.shapes.items()
            }
            for row in rows
        },
    )
