"""What every evaluation suite can be told."""

from typing import Literal, TypeVar

from difftransformer.config.base import Settings, setting

Value = TypeVar("Value", int, str)


class SuiteSettings(Settings):
    """What every suite has: how the model is run, none of which changes what is measured."""

    batch_size: int = setting(32, meaning="Sequences held in memory.", unit="sequences", gt=0)
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto",
        meaning="Where to evaluate; auto picks CUDA where there is one, logs and records it.",
    )
    backend: Literal["auto", "eager", "blocked", "sdpa", "flash_attn"] = setting(
        "auto", meaning="Attention implementation; auto picks, logs and records its choice."
    )
    precision: Literal["fp32", "bf16"] = setting(
        "fp32", meaning="bf16: autocast with fp32 weights; sums are float64 under both."
    )


def distinct(values: list[Value]) -> list[Value]:
    """Return the values.

    Raises:
        ValueError: One of them stands twice.
    """
    if len(set(values)) < len(values):
        raise ValueError(f"must be distinct, got {values}")
    return values
