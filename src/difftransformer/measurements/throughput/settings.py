"""What is timed in training and forward passes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from difftransformer.config import timing
from difftransformer.config.base import Name, setting
from difftransformer.config.measurement import Options as BaseOptions
from difftransformer.config.timing import OWN_SIZES, BatchConfig, Models, Sizing


class ShapeConfig(BatchConfig):
    """Sizes that all rows are timed at."""

    model: dict[str, Any] = setting(
        {}, meaning="Settings of the model that differ from the rows' own, see ModelConfig."
    )


class Timing(timing.Timing):
    """What is timed at a scale: all rows, at each shape, by each backend.

    Training is forward, loss and backward, without the optimiser; forward has the loss, too.
    """

    shapes: dict[Name, ShapeConfig] = setting(
        meaning="Shapes by id, one after the other; within one all rows take turns.", min_length=1
    )
    precision: Literal["fp32", "bf16"] = setting(
        "fp32", meaning="bf16: autocast with fp32 weights."
    )
    compile: bool = setting(
        False, meaning="Compile the layers, on a GPU the loss, too, as training does."
    )
    loss_chunk: int = setting(
        1024, meaning="Positions whose logits exist at one time.", unit="tokens", gt=0
    )
    peak_flops: dict[str, float] = setting(
        {},
        meaning="Peak of a GPU by a part of its name, at `precision`, for the share of it that "
        "training reaches; one that is not here has no share. A CPU's is measured.",
        unit="FLOP/s",
    )
    own_sizes: BatchConfig | None = setting(
        None,
        meaning="What rows of other measurements are given, each with the sizes of its run, in "
        "rounds of their own; null: they are not timed, and their tables have no speeds.",
    )

    @model_validator(mode="after")
    def _own_sizes_are_no_shape(self) -> Self:
        if OWN_SIZES in self.shapes:
            raise ValueError(f"shapes: '{OWN_SIZES}' is a setting beside them; take another name")
        return self

    @property
    def times_own_sizes(self) -> bool:
        """Whether `own_sizes` is set."""
        return self.own_sizes is not None

    def timed(self) -> Mapping[str, BatchConfig]:
        """What a call is given, by shape."""
        return self.shapes | ({} if self.own_sizes is None else {OWN_SIZES: self.own_sizes})

    def models(self, rows: Sequence[str], own: Sequence[str], sized: Sizing) -> Models:
        """See `difftransformer.config.timing.Timing.models`."""
        found: Models = {
            row: {
                name: sized.changed(
                    row, shape.model, shape.seq_len, f"timings.throughput.shapes.{name}"
                )
                for name, shape in self.shapes.items()
            }
            for row in rows
        }
        if self.own_sizes is not None:
            for row in own:
                model = replace(sized.own(row), max_positions=self.own_sizes.seq_len)
                found.setdefault(row, {})[OWN_SIZES] = model
        return found


class Options(BaseOptions):
    """Timings have neither suites nor seeds."""

    suites: ClassVar[int] = 0
    trained: ClassVar[bool] = False
    seeded: ClassVar[bool] = False
    timing: ClassVar[str] = "throughput"
