"""Settings of the decoding job (DIFF V2), and what it gets."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from difftransformer.config.base import Settings, setting
from difftransformer.config.model import ModelConfig
from difftransformer.config.suites.base import distinct
from difftransformer.config.throughput import Backend

Sizes = Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=1), AfterValidator(distinct)]


class DecodingConfig(Settings):
    """What is timed at a scale: every row writes tokens at each batch size and context length."""

    model: dict[str, Any] = setting(
        {}, meaning="Settings of the model that differ from the rows' own, see ModelConfig."
    )
    batches: Sizes = setting(meaning="Sequences that are written at one time.", unit="sequences")
    contexts: Sizes = setting(
        meaning="Positions in the cache before the first new token.", unit="tokens"
    )
    new_tokens: int = setting(16, meaning="Tokens written in one turn.", unit="tokens", gt=0)
    backends: Annotated[list[Backend], Field(min_length=1), AfterValidator(distinct)] = setting(
        ["sdpa"], meaning="Attention implementations; the fastest for a row counts."
    )
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto", meaning="Where to time; auto picks CUDA where there is one, logs and records it."
    )
    precision: Literal["fp32", "bf16"] = setting("fp32", meaning="Precision of weights and cache.")
    threads: int | None = setting(
        None, meaning="Threads of one operation; null: all cores of the job.", gt=0
    )
    clock: Literal["wall", "cpu"] = setting(
        "wall", meaning="wall, or cpu: seconds that the process computes, for a busy CPU."
    )
    warmup: int = setting(2, meaning="Untimed rounds before the first timed one.", ge=0)
    repeats: int = setting(9, meaning="Timed rounds; in each, all rows have a turn.", ge=3)

    @model_validator(mode="after")
    def _a_gpu_has_no_cpu_time(self) -> Self:
        if self.clock == "cpu" and self.device != "cpu":
            raise ValueError("clock: cpu does not see the GPU's work; set device: cpu, or wall")
        return self


class DecodingSlice(Settings):
    """The decoding job at one scale, resolved."""

    scale: str = setting(meaning="Name of the scale.")
    config: DecodingConfig = setting(meaning="What is timed, and how often.")
    models: dict[str, ModelConfig] = setting(meaning="Row -> model.")
