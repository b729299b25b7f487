"""Base class of all settings: strict, frozen, with documented fields."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticUndefined

from difftransformer.models.config import setting_metadata

Value = TypeVar("Value", int, str)

LONGEST_NAME = 100
"""Characters in a name; file systems take 255 for a folder or a file."""

Backend = Literal["eager", "blocked", "sdpa", "flash_attn", "fused"]
"""Ways to compute attention; `models.kernels` has a file for each."""
_HALF = ("flash_attn", "fused")
"""Backends that only compute in half precision."""
Name = Annotated[
    str, StringConstraints(pattern=rf"^[A-Za-z0-9_]{{1,{LONGEST_NAME}}}$", strict=True)
]
"""Name of a run, dataset, suite, recipe or artifact: part of paths, of commands and of targets."""


class Settings(BaseModel):
    """A frozen group of settings that refuses unknown keys, NaN and infinity, and never guesses."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def setting(
    default: Any = PydanticUndefined,
    *,
    meaning: str,
    unit: str | None = None,
    source: str | None = None,
    holds: Iterable[str] = (),
    **limits: Any,
) -> Any:
    """Declare a field with its documentation; arguments as for `models.config.setting`."""
    return Field(default, **setting_metadata(meaning, unit, source, holds), **limits)


def require_half(backends: Iterable[str], precision: str, device: str) -> None:
    """Require half precision for backends that support nothing else (`fused` on a CPU does).

    Raises:
        ValueError: Another precision is set.
    """
    for backend in backends:
        interpreted = backend == "fused" and device == "cpu"
        if precision == "fp32" and backend in _HALF and not interpreted:
            raise ValueError(f"backend {backend} computes in half precision; set precision: bf16")


def distinct(values: list[Value]) -> list[Value]:
    """Return values that must be unique.

    Raises:
        ValueError: A value occurs twice.
    """
    if len(set(values)) < len(values):
        raise ValueError(f"must be distinct, got {values}")
    return values


Sizes = Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=1), AfterValidator(distinct)]
"""Different positive whole numbers, one or more."""
