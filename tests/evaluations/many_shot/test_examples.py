"""Choice and order of demonstrations: balanced, seeded, the same on every machine."""

from collections import Counter
from typing import Any

import pytest

from difftransformer.errors import DataError
from difftransformer.evaluations.many_shot.examples import Example, arrange, asked, choose, shuffled

LABELS = ("a", "b", "c")
SET = [Example(f"{label}{place}", label) for label in LABELS for place in range(5)]

GOLDEN: dict[str, Any] = {
    "chosen": ["a2 a0", "b3 b2", "c2 c3"],
    "random 0": "a0 c3 b2 b3 a2 c2",
    "random 1": "a2 c2 c3 a0 b3 b2",
    "alternating 0": "b2 a0 c2 b3 a2 c3",
    "alternating 3": "a0 c2 b3 a2 c3 b2",
    "asked": "a2 b2 c2 b1",
    "shuffled": [2267, 1770, 679, 1621, 1879, 243],
}
"""As computed when these tests were written."""


def texts(examples: list[Example]) -> str:
    return " ".join(example.text for example in examples)


def test_orders_are_these_on_every_machine() -> None:
    chosen = choose(SET, LABELS, 6, seed=43)
    assert [texts(examples) for examples in chosen] == GOLDEN["chosen"]
    assert texts(arrange(chosen, "random", seed=0)) == GOLDEN["random 0"]
    assert texts(arrange(chosen, "random", seed=1)) == GOLDEN["random 1"]
    assert texts(arrange(chosen, "alternating", seed=0)) == GOLDEN["alternating 0"]
    assert texts(arrange(chosen, "alternating", seed=3)) == GOLDEN["alternating 3"]
    assert texts(asked(SET, 4, seed=43)) == GOLDEN["asked"]
    assert shuffled(3540, seed=9, stream=0)[:6] == GOLDEN["shuffled"]


def test_classes_give_equally_many_and_fewer_are_a_part_of_more() -> None:
    few, more = choose(SET, LABELS, 6, seed=1), choose(SET, LABELS, 12, seed=1)
    for some, others, label in zip(few, more, LABELS, strict=True):
        assert len(some) == 2 and len(others) == 4 and others[:2] == some
        assert {example.label for example in others} == {label}
        assert len({example.text for example in others}) == 4


def test_any_examples_can_be_chosen_and_fewer_are_a_part_of_more() -> None:
    def some(number: int, seed: int) -> set[Example]:
        chosen = choose(SET, LABELS, number, "random", seed=seed)
        for each, label in zip(chosen, LABELS, strict=True):
            assert {one.label for one in each} <= {label}
        return {one for each in chosen for one in each}

    for seed in range(5):
        assert len(some(1, seed)) == 1 and len(some(7, seed)) == 7
        assert some(1, seed) < some(7, seed) < some(15, seed) == set(SET)
    assert len({frozenset(some(4, seed)) for seed in range(20)}) > 10


def test_a_class_that_runs_out_is_passed_over() -> None:
    uneven = [one for one in SET if one.text not in ("a1", "a2", "a3", "a4")]
    assert [len(examples) for examples in choose(uneven, LABELS, 7, seed=0)] == [1, 3, 3]
    alternating = arrange(choose(uneven, LABELS, 7, seed=0), "alternating", seed=0)
    assert Counter(example.label for example in alternating) == {"a": 1, "b": 3, "c": 3}
    assert [example.label for example in alternating[3:]] in (["b", "c"] * 2, ["c", "b"] * 2)


def test_an_order_keeps_the_demonstrations_and_seeds_differ() -> None:
    chosen = choose(SET, LABELS, 15, seed=0)
    orders = {texts(arrange(chosen, "random", seed=seed)) for seed in range(10)}
    assert len(orders) == 10 and len({" ".join(sorted(order.split())) for order in orders}) == 1
    for seed in range(4):
        labels = [example.label for example in arrange(chosen, "alternating", seed=seed)]
        assert labels == labels[:3] * 5 and sorted(labels[:3]) == list(LABELS)


def test_too_few_examples_are_named() -> None:
    with pytest.raises(DataError, match="18 demonstrations asked for, the set has 15 examples"):
        choose(SET, LABELS, 18, seed=0)
    with pytest.raises(DataError, match="no example of label 'd'"):
        choose(SET, (*LABELS, "d"), 4, seed=0)
    with pytest.raises(DataError, match="18 demonstrations asked for, the set has 15 examples"):
        choose(SET, LABELS, 18, "random", seed=0)
    with pytest.raises(DataError, match="16 test_items asked for, the set has 15"):
        asked(SET, 16, seed=0)
