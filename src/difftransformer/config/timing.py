"""Settings of all benchmark jobs."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from difftransformer.config.base import Backend, Settings, distinct, require_half, setting
from difftransformer.config.evaluation import Options as BaseOptions

TRAINED_SIZES = "trained_sizes"
"""Shape with the sizes of the runs themselves."""


class BatchConfig(Settings):
    """What a model is given in one call."""

    label: str = setting(meaning="Name of the shape in tables, such as 3B, 2K")
    seq_len: int = setting(meaning="Positions of a sequence.", unit="tokens", gt=0)
    batch_size: int = setting(meaning="Sequences in one call.", unit="sequences", gt=0)


class Timing(Settings):
    """Where and how often models are timed, in interleaved rounds."""

    matched: ClassVar[bool] = False
    """Whether rows whose run has a `match` get the parameters of the first."""

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
        """Return the batch of a call by shape; `TRAINED_SIZES` is one where it is timed."""
        raise NotImplementedError(type(self).__name__)

    def sizes(self) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        """Return what the models of all rows have in place of their runs' settings.

        Returns:
            Name of the model, such as its shape -> key below the scale's `timings`, for errors, and
            the changed settings.
        """
        raise NotImplementedError(type(self).__name__)


class Options(BaseOptions):
    """Timings have neither suites nor seeds; ``timing`` names the evaluation."""

    suites: ClassVar[int] = 0
    trained: ClassVar[bool] = False
    seeded: ClassVar[bool] = False
