"""Settings that every job of timings has."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from difftransformer.config.base import Settings, setting
from difftransformer.config.suites.base import distinct

Backend = Literal["eager", "blocked", "sdpa", "flash_attn"]
Backends = Annotated[list[Backend], Field(min_length=1), AfterValidator(distinct)]


class TimingConfig(Settings):
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
    warmup: int = setting(2, meaning="Untimed rounds before the first timed one.", ge=0)
    repeats: int = setting(
        9, meaning="Timed rounds; in each, everything that is timed has one turn.", ge=3
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
