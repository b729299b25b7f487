"""Settings of the throughput job (table 7), and what it gets."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from difftransformer.config.base import Settings, setting
from difftransformer.config.model import ModelConfig
from difftransformer.config.suites.base import distinct

Backend = Literal["eager", "blocked", "sdpa", "flash_attn"]


class ShapeConfig(Settings):
    """Sizes that all rows are timed at."""

    label: str = setting(meaning="Name of the shape in tables, such as 3B, 2K")
    seq_len: int = setting(meaning="Positions of a sequence.", unit="tokens", gt=0)
    batch_size: int = setting(meaning="Sequences in one call.", unit="sequences", gt=0)
    model: dict[str, Any] = setting(
        {}, meaning="Settings of the model that differ from the rows' own, see ModelConfig."
    )


class ThroughputConfig(Settings):
    """What is timed at a scale: all rows, at each shape, by each backend.

    Training is forward, loss and backward, without the optimiser; forward has the loss, too.
    """

    shapes: dict[str, ShapeConfig] = setting(
        meaning="Shapes by id, one after the other; within one all rows take turns.", min_length=1
    )
    backends: Annotated[list[Backend], Field(min_length=1), AfterValidator(distinct)] = setting(
        meaning="Attention implementations; each row is timed with each."
    )
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto", meaning="Where to time; auto picks CUDA where there is one, logs and records it."
    )
    precision: Literal["fp32", "bf16"] = setting(
        "fp32", meaning="bf16: autocast with fp32 weights."
    )
    threads: int | None = setting(
        None, meaning="Threads of one operation; null: all cores of the job.", gt=0
    )
    clock: Literal["wall", "cpu"] = setting(
        "wall",
        meaning="wall, or cpu: seconds that the process computes, of all threads together, for a "
        "CPU that does other work too.",
    )
    warmup: int = setting(2, meaning="Untimed rounds before the first timed one.", ge=0)
    repeats: int = setting(
        9, meaning="Timed rounds; in each, every row, backend and mode has one turn.", ge=3
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

    @model_validator(mode="after")
    def _flash_computes_in_half(self) -> Self:
        if "flash_attn" in self.backends and self.precision == "fp32":
            raise ValueError("backends: flash_attn computes in half precision; set precision: bf16")
        return self

    @model_validator(mode="after")
    def _a_gpu_has_no_cpu_time(self) -> Self:
        if self.clock == "cpu" and self.device != "cpu":
            raise ValueError("clock: cpu does not see the GPU's work; set device: cpu, or wall")
        return self


class ThroughputSlice(Settings):
    """The throughput job at one scale, resolved."""

    scale: str = setting(meaning="Name of the scale.")
    config: ThroughputConfig = setting(meaning="What is timed, and how often.")
    models: dict[str, dict[str, ModelConfig]] = setting(
        meaning="Row -> shape -> model; at one shape the rows differ in their attention alone."
    )
