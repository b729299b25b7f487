"""What a job of timings gets: settings that all have, and the models of its rows."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import AfterValidator, Field, SerializeAsAny, model_validator

from difftransformer.config.base import Backend, Name, Settings, distinct, require_half, setting
from difftransformer.models.config import ModelConfig

Backends = Annotated[list[Backend], Field(min_length=1), AfterValidator(distinct)]

OWN_SIZES = "own_sizes"
"""Shape of rows that are timed with the sizes of their runs, see `Timing.times_own_sizes`."""

Models = dict[str, dict[str, ModelConfig]]
"""Row -> shape that it is timed at -> model."""


class Sizing(Protocol):
    """Gives the models of rows."""

    def own(self, row: str) -> ModelConfig:
        """Model of the row's run."""

    def changed(
        self, row: str, changes: Mapping[str, Any], max_positions: int, key: str
    ) -> ModelConfig:
        """The same with what the scale's file changes under ``key``."""

    def matched(self, row: str, model: ModelConfig, to: ModelConfig) -> ModelConfig:
        """``model`` with as many parameters as ``to``, if the row's run has a `match`."""


class BatchConfig(Settings):
    """What a model is given in one call."""

    label: str = setting(meaning="Name of the shape in tables, such as 3B, 2K")
    seq_len: int = setting(meaning="Positions of a sequence.", unit="tokens", gt=0)
    batch_size: int = setting(meaning="Sequences in one call.", unit="sequences", gt=0)


class Timing(Settings):
    """Where and how often something is timed, in rounds in which everything has its turns."""

    backends: Backends = setting(
        meaning="Attention implementations; each row is timed with each, its fastest counts."
    )
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto", meaning="Where to time; auto picks CUDA where there is one, logs and records it."
    )
    precision: Literal["fp32", "bf16"] = setting("fp32", meaning="Precision of the computation.")
    threads: int | None = setting(
        None, meaning="Threads of one operation; null: all cores of the job.", gt=0
    )
    clock: Literal["wall", "cpu"] = setting(
        "wall",
        meaning="wall, or cpu: seconds that the process computes, of all threads together, for a "
        "CPU that does other work too.",
    )
    processes: int = setting(
        5,
        meaning="Fresh processes that take rounds, one after the other; what is claimed of speeds "
        "is over them.",
        ge=3,
    )
    warmup: int = setting(
        2, meaning="Untimed rounds of a process before its first timed one.", ge=0
    )
    repeats: int = setting(
        3,
        meaning="Timed rounds of a process; in each, everything that is timed has one turn.",
        ge=3,
    )

    @model_validator(mode="after")
    def _some_compute_in_half(self) -> Self:
        require_half(self.backends, self.precision, self.device)
        return self

    @model_validator(mode="after")
    def _a_gpu_has_no_cpu_time(self) -> Self:
        if self.clock == "cpu" and self.device != "cpu":
            raise ValueError("clock: cpu does not see the GPU's work; set device: cpu, or wall")
        return self

    @property
    def times_own_sizes(self) -> bool:
        """Whether it times rows of other measurements too, each with the sizes of its run."""
        return False

    def models(self, rows: Sequence[str], own: Sequence[str], sized: Sizing) -> Models:
        """Return what is timed: ``rows`` at the scale's sizes, ``own`` with those of their runs.

        Raises:
            ConfigError: Sizes that the model of a row cannot have.
        """
        raise NotImplementedError(type(self).__name__)


class TimingSlice(Settings):
    """A job of timings at one scale, resolved; ``measurement`` types ``config``."""

    scale: str = setting(meaning="Name of the scale.")
    measurement: Name = setting(meaning="Which measurement it is.")
    config: SerializeAsAny[Timing] = setting(meaning="What is timed, and how often.")
    models: Models = setting(meaning="Row -> shape that it is timed at -> model.")
