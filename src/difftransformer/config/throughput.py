"""Settings of the throughput job (table 7), and what it gets."""

from typing import Any, Literal

from difftransformer.config.base import Settings, setting
from difftransformer.config.model import ModelConfig
from difftransformer.config.timing import TimingConfig


class ShapeConfig(Settings):
    """Sizes that all rows are timed at."""

    label: str = setting(meaning="Name of the shape in tables, such as 3B, 2K")
    seq_len: int = setting(meaning="Positions of a sequence.", unit="tokens", gt=0)
    batch_size: int = setting(meaning="Sequences in one call.", unit="sequences", gt=0)
    model: dict[str, Any] = setting(
        {}, meaning="Settings of the model that differ from the rows' own, see ModelConfig."
    )


class ThroughputConfig(TimingConfig):
    """What is timed at a scale: all rows, at each shape, by each backend.

    Training is forward, loss and backward, without the optimiser; forward has the loss, too.
    """

    shapes: dict[str, ShapeConfig] = setting(
        meaning="Shapes by id, one after the other; within one all rows take turns.", min_length=1
    )
    precision: Literal["fp32", "bf16"] = setting(
        "fp32", meaning="bf16: autocast with fp32 weights."
    )
    loss_chunk: int = setting(
        1024, meaning="Positions whose logits exist at one time.", unit="tokens", gt=0
    )
    peak_flops: dict[str, float] = setting(
        {},
        meaning="Peak of a device by a part of its name, at `precision`, for the share of it that "
        "training reaches; a device that is not here has no share.",
        unit="FLOP/s",
    )


class ThroughputSlice(Settings):
    """The throughput job at one scale, resolved."""

    scale: str = setting(meaning="Name of the scale.")
    config: ThroughputConfig = setting(meaning="What is timed, and how often.")
    models: dict[str, dict[str, ModelConfig]] = setting(
        meaning="Row -> shape -> model; at one shape the rows differ in their attention alone."
    )
