"""What every evaluation suite can be told."""

from typing import Literal, TypeVar

from difftransformer.config.base import Settings, setting

AVERAGE = "average"
"""Name of the unweighted mean over tasks."""

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


def log_places(first: int, last: int, number: int) -> list[int]:
    """Return positions evenly spaced on a logarithmic axis, ascending, of equal ones one.

    Args:
        first: The smallest; below ``last``.
        last: The largest, which is always among them.
        number: How many, two or more.
    """
    step = (last / first) ** (1 / (number - 1))
    found = {round(first * step**index) for index in range(number - 1)}
    return [*sorted(found - {last}), last]
