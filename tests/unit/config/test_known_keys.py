"""Hints to an unknown key are the keys of its own mapping, wherever that stands."""

from typing import Annotated

import pytest
from pydantic import TypeAdapter

from difftransformer.config.base import Name, Settings
from difftransformer.config.known_keys import beside


class Inner(Settings):
    a: int


class Other(Settings):
    b: int


class Outer(Settings):
    one: Inner
    listed: list[Inner]
    named: dict[Name, Inner]
    any_name: dict[str, Inner]
    either: Annotated[Inner | Other | None, "a union"]
    open: dict[str, object]


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        (("x",), set(Outer.model_fields)),
        (("one", "x"), {"a"}),
        (("listed", 0, "x"), {"a"}),
        (("named", "n", "x"), {"a"}),
        (("any_name", "n", "x"), {"a"}),
        (("either", "x"), {"a", "b"}),
        (("open", "n", "x"), set()),
    ],
)
def test_keys_are_those_of_the_mapping(path: tuple[int | str, ...], keys: set[str]) -> None:
    assert beside(TypeAdapter(Outer).json_schema(), path) == keys
