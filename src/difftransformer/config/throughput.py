"""Settings of the throughput job (table 7), and what it gets."""

from typing import Any, Literal, Self

from pydantic import model_validator

from difftransformer.config.base import Name, Settings, setting
from difftransformer.config.model import ModelConfig
from difftransformer.config.timing import TimingConfig

VARIANTS = "variants"
"""Shape of the rows of the table of variants."""


class BatchConfig(Settings):
    """What a model is given in one call."""

    label: str = setting(meaning="Name of the shape in tables, such as 3B, 2K")
    seq_len: int = setting(meaning="Positions of a sequence.", unit="tokens", gt=0)
    batch_size: int = setting(meaning="Sequences in one call.", unit="sequences", gt=0)


class ShapeConfig(BatchConfig):
    """Sizes that all rows are timed at."""

    model: dict[str, Any] = setting(
        {}, meaning="Settings of the model that differ from the rows' own, see ModelConfig."
    )


class ThroughputConfig(TimingConfig):
    """What is timed at a scale: all rows, at each shape, by each backend.

    Training is forward, loss and backward, without the optimiser; forward has the loss, too.
    """

    shapes: dict[Name, ShapeConfig] = setting(
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
    variants: BatchConfig | None = setting(
        None,
        meaning="What the rows of the table of variants are given, each with the sizes of its run, "
        "in rounds of their own; null: they are not timed, and the table has no speeds.",
    )

    @model_validator(mode="after")
    def _variants_are_no_shape(self) -> Self:
        if VARIANTS in self.shapes:
            raise ValueError(f"shapes: '{VARIANTS}' is a setting beside them; take another name")
        return self

    def timed(self) -> dict[str, BatchConfig]:
        """Shapes of table 7 by id, and that of variants."""
        return self.shapes | ({} if self.variants is None else {VARIANTS: self.variants})


class ThroughputSlice(Settings):
    """The throughput job at one scale, resolved."""

    scale: str = setting(meaning="Name of the scale.")
    config: ThroughputConfig = setting(meaning="What is timed, and how often.")
    models: dict[str, dict[str, ModelConfig]] = setting(
        meaning="Row -> shape that it is timed at -> model. Rows of table 7 differ in their "
        "attention alone, variants have the sizes of their runs."
    )
