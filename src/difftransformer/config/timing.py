"""Base classes for the settings of benchmark jobs, which time models."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from difftransformer.config.base import Backend, Settings, distinct, require_half, setting
from difftransformer.config.evaluation import Options as BaseOptions

TRAINED_SIZES = "trained_sizes"
"""Name of the benchmark shape at which each run is timed at its own model size."""


class BatchConfig(Settings):
    """Batch size and sequence length of one timed call of a model."""

    label: str = setting(meaning="Name of the shape in tables, such as 3B, 2K")
    seq_len: int = setting(meaning="Positions of a sequence.", unit="tokens", gt=0)
    batch_size: int = setting(meaning="Sequences in one call.", unit="sequences", gt=0)


class Timing(Settings):
    """Base class for timing settings: models are timed in interleaved rounds."""

    matched: ClassVar[bool] = False
    """Whether runs with `match` get as many parameters as the first row's model."""

    backends: Annotated[list[Backend], Field(min_length=1), AfterValidator(distinct)] = setting(
        meaning="Attention implementations; each row is timed with each, its fastest counts."
    )
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto", meaning="Where to time; auto picks CUDA where there is one, logs and records it."
    )
    precision: Literal["fp32", "bf16"] = setting(
        "fp32",
        meaning="Precision of the computation; in bf16 weights are fp32 in training and bf16 in "
        "decoding.",
    )
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

    def calls(self) -> Mapping[str, BatchConfig]:
        """Return the batch of a timed call for each shape, which may include `TRAINED_SIZES`."""
        raise NotImplementedError(type(self).__name__)

    def sizes(self) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        """Return the model settings of each timed size, which replace those of the runs.

        Returns:
            Name of the size -> pair of the key that sets it in the scale's `timings`, for error
            messages, and the changed model settings.
        """
        raise NotImplementedError(type(self).__name__)


class Options(BaseOptions):
    """Base class for the options of sections with timings, which have neither suites nor seeds."""

    suites: ClassVar[int] = 0
    trained: ClassVar[bool] = False
    seeded: ClassVar[bool] = False
