"""Settings of the throughput benchmark."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import model_validator

from difftransformer.config import timing
from difftransformer.config.base import Name, setting
from difftransformer.config.timing import TRAINED_SIZES, BatchConfig


class ShapeConfig(BatchConfig):
    """A shape of the benchmark: the batch and the model sizes at which all rows are timed."""

    model: dict[str, Any] = setting(
        {}, meaning="Settings of the model that differ from the rows' own, see ModelConfig."
    )


class Timing(timing.Timing):
    """Settings of the throughput benchmark at a scale: every row at each shape with each backend.

    A training pass is forward, loss and backward, without the optimizer. A forward pass includes
    the loss.
    """

    shapes: dict[Name, ShapeConfig] = setting(
        meaning="Shapes by id, in turn; rows are interleaved within a shape.", min_length=1
    )
    compile: bool = setting(
        False, meaning="Compile the layers, and the loss on a GPU, as training does."
    )
    loss_chunk: int = setting(
        1024, meaning="Positions whose logits are in memory at a time.", unit="tokens", gt=0
    )
    trained_sizes: BatchConfig | None = setting(
        None,
        meaning="Batch for rows of other evaluations, timed with the sizes of their runs in rounds "
        "of their own; null: they are not timed, and their tables have no speeds.",
    )

    @model_validator(mode="after")
    def _trained_sizes_is_no_shape(self) -> Self:
        if TRAINED_SIZES in self.shapes:
            raise ValueError(
                f"shapes: '{TRAINED_SIZES}' is a setting of its own; take another name"
            )
        return self

    def calls(self) -> Mapping[str, BatchConfig]:
        """Return the batch of each timed shape, by the shape's name."""
        if self.trained_sizes is None:
            return self.shapes
        return self.shapes | {TRAINED_SIZES: self.trained_sizes}

    def sizes(self) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        """Return the model settings of each shape, with as many positions as the shape needs."""
        return {
            name: (f"throughput.shapes.{name}", shape.model | {"max_positions": shape.seq_len})
            for name, shape in self.shapes.items()
        }


class Options(timing.Options):
    """Report options of the throughput benchmark."""

    timing: ClassVar[str] = "throughput"
