"""Hints for an unknown key are the keys of its own mapping at any depth."""

from typing import Annotated, Literal

import pytest
from pydantic import Field, TypeAdapter

from difftransformer.config.base import Name, Settings
from difftransformer.config.known_keys import beside


class Inner(Settings):
    a: int


class Other(Settings):
    b: int


class First(Settings):
    kind: Literal["first"]
    c: int


class Second(Settings):
    kind: Literal["second"]
    d: int


class Outer(Settings):
    nested: Inner
    listed: list[Inner]
    named: dict[Name, Inner]
    any_name: dict[str, Inner]
    either: Annotated[Inner | Other | None, "a union"]
    discriminated: Annotated[First | Second, Field(discriminator="kind")]
    open: dict[str, object]


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        (("x",), set(Outer.model_fields)),
        (("nested", "x"), {"a"}),
        (("listed", 0, "x"), {"a"}),
        (("named", "n", "x"), {"a"}),
        (("any_name", "n", "x"), {"a"}),
        (("either", "x"), {"a", "b"}),
        (("discriminated", "x"), {"kind", "c", "d"}),
        (("open", "n", "x"), set()),
    ],
)
def test_keys_are_those_of_the_mapping(path: tuple[int | str, ...], keys: set[str]) -> None:
    assert beside(TypeAdapter(Outer).json_schema(), path) == keys
