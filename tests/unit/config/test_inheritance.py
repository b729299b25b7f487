"""Layers merge key by key and remember who set what; bases may not form a circle."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from difftransformer.config.inheritance import Layers, ancestry
from difftransformer.errors import ConfigError


@dataclass
class Entry:
    base: str | None = None


TREES = st.recursive(
    st.integers(),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)
LAYERS = st.lists(st.dictionaries(st.sampled_from("abcd"), TREES, max_size=3), max_size=4)


def merged_slowly(layers: list[dict[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged_slowly([result[key], value]) if both else value
    return result


@given(LAYERS)
def test_later_layers_win_key_by_key(layers: list[dict[str, Any]]) -> None:
    together = Layers()
    for index, layer in enumerate(layers):
        together.add(layer, str(index))
    assert together.values == merged_slowly(layers)


@given(LAYERS)
def test_layers_leave_their_inputs_alone(layers: list[dict[str, Any]]) -> None:
    before = repr(layers)
    together = Layers()
    for layer in layers:
        together.add(layer, "x")
    assert repr(layers) == before


def test_the_origin_of_a_key_is_the_layer_that_set_it_last() -> None:
    layers = Layers().add({"a": {"b": 1, "c": 1}}, "first").add({"a": {"b": 2}}, "second")
    assert layers.origin(("a", "b")) == "second"
    assert layers.origin(("a", "c")) == "first"
    assert layers.origin(("a", "b", "deeper")) == "second"
    assert layers.origin(("z",)) == ""


def test_ancestry_goes_from_the_root_down() -> None:
    entries = {"a": Entry(), "b": Entry("a"), "c": Entry("b")}
    assert list(ancestry(entries, "c", "f").items()) == list(entries.items())


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"a": Entry("b"), "b": Entry("a")}, "bases form a circle: a -> b -> a"),
        ({"a": Entry("a")}, "bases form a circle: a -> a"),
        ({"a": Entry("diif"), "diff": Entry()}, "unknown base 'diif'; did you mean 'diff'?"),
    ],
)
def test_a_broken_chain_is_one_line(entries: dict[str, Entry], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ancestry(entries, "a", "runs.yaml: runs")
    assert message in str(caught.value)
