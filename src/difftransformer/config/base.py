"""Base class of all settings: strict, frozen, with documented fields."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticUndefined

from difftransformer.models.config import setting_metadata

Value = TypeVar("Value", int, str)

LONGEST_NAME = 100
"""Maximum number of characters in a name; file systems allow 255 in a file or folder name."""

Backend = Literal["eager", "blocked", "sdpa", "flash_attn", "fused"]
"""Name of an implementation of attention; `models.kernels` has one file per implementation."""
_HALF = ("flash_attn", "fused")
"""Backends that support half precision only."""
Name = Annotated[
    str, StringConstraints(pattern=rf"^[A-Za-z0-9_]{{1,{LONGEST_NAME}}}$", strict=True)
]
"""Name of a run, dataset, suite, recipe or artifact; part of paths, commands and targets."""


class Settings(BaseModel):
    """Base class of all settings: frozen, without unknown keys, type coercion, NaN and infinity."""

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
    """Return a pydantic field with its documentation; arguments as for `models.config.setting`."""
    return Field(default, **setting_metadata(meaning, unit, source, holds), **limits)


def require_half(backends: Iterable[str], precision: str, device: str) -> None:
    """Check that the precision is half precision if a backend supports no other.

    The backend `fused` supports full precision on a CPU.

    Raises:
        ValueError: A backend does not support ``precision``.
    """
    for backend in backends:
        interpreted = backend == "fused" and device == "cpu"
        if precision == "fp32" and backend in _HALF and not interpreted:
            raise ValueError(f"backend {backend} computes in half precision; set precision: bf16")


def distinct(values: list[Value]) -> list[Value]:
    """Return ``values`` unchanged after checking that they are distinct.

    Raises:
        ValueError: A value occurs twice.
    """
    if len(set(values)) < len(values):
        raise ValueError(f"must be distinct, got {values}")
    return values


Sizes = Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=1), AfterValidator(distinct)]
"""A list of one or more distinct positive integers."""
