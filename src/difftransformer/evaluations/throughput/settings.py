"""What is timed in training and forward passes."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import model_validator

from difftransformer.config import timing
from difftransformer.config.base import Name, setting
from difftransformer.config.timing import TRAINED_SIZES, BatchConfig


class ShapeConfig(BatchConfig):
    """Sizes that all rows are timed at."""

    model: dict[str, Any] = setting(
        {}, meaning="Settings of the model that differ from the rows' own, see ModelConfig."
    )


class Timing(timing.Timing):
    """What is timed at a scale: all rows, at each shape, by each backend.

    Training is forward, loss and backward, without the optimizer; forward has the loss, too.
    """

    shapes: dict[Name, ShapeConfig] = setting(
        meaning="Shapes by id, one after the other; within one all rows take turns.", min_length=1
    )
    compile: bool = setting(
        False, meaning="Compile the layers, on a GPU the loss, too, as training does."
    )
    loss_chunk: int = setting(
        1024, meaning="Positions whose logits exist at one time.", unit="tokens", gt=0
    )
    trained_sizes: BatchConfig | None = setting(
        None,
        meaning="What rows of other evaluations are given, each with the sizes of its run, in "
        "rounds of their own; null: they are not timed, and their tables have no speeds.",
    )

    @model_validator(mode="after")
    def _trained_sizes_is_no_shape(self) -> Self:
        if TRAINED_SIZES in self.shapes:
            raise ValueError(
                f"shapes: '{TRAINED_SIZES}' is a setting of its own; take another name"
            )
        return self

    def calls(self) -> Mapping[str, BatchConfig]:
        """Return the batches that are timed, by the name of their shape."""
        if self.trained_sizes is None:
            return self.shapes
        return self.shapes | {TRAINED_SIZES: self.trained_sizes}

    def sizes(self) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        """A model for each shape, with its positions."""
        return {
            name: (f"throughput.shapes.{name}", shape.model | {"max_positions": shape.seq_len})
            for name, shape in self.shapes.items()
        }


class Options(timing.Options):
    """What a section shows."""

    timing: ClassVar[str] = "throughput"
