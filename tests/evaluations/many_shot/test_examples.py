"""Choice and order of demonstrations: balanced, seeded, the same on every machine."""

from collections import Counter
from typing import Any

import pytest

from difftransformer.errors import DataError
from difftransformer.evaluations.many_shot.examples import (
    Example,
    choose_demonstrations,
    order_demonstrations,
    sample_items,
    shuffled,
)

LABELS = ("a", "b", "c")
SET = [Example(f"{label}{number}", label) for label in LABELS for number in range(5)]

GOLDEN: dict[str, Any] = {
    "chosen": ["a2 a0", "b3 b2", "c2 c3"],
    "random 0": "a0 c3 b2 b3 a2 c2",
    "random 1": "a2 c2 c3 a0 b3 b2",
    "alternating 0": "b2 a0 c2 b3 a2 c3",
    "alternating 3": "a0 c2 b3 a2 c3 b2",
    "items": "a2 b2 c2 b1",
    "shuffled": [2267, 1770, 679, 1621, 1879, 243],
}
"""As computed when these tests were written."""


def texts(examples: list[Example]) -> str:
    return " ".join(example.text for example in examples)


def test_orders_are_the_same_on_every_machine() -> None:
    chosen = choose_demonstrations(SET, LABELS, 6, seed=43)
    assert [texts(examples) for examples in chosen] == GOLDEN["chosen"]
    assert texts(order_demonstrations(chosen, "random", seed=0)) == GOLDEN["random 0"]
    assert texts(order_demonstrations(chosen, "random", seed=1)) == GOLDEN["random 1"]
    assert texts(order_demonstrations(chosen, "alternating", seed=0)) == GOLDEN["alternating 0"]
    assert texts(order_demonstrations(chosen, "alternating", seed=3)) == GOLDEN["alternating 3"]
    assert texts(sample_items(SET, 4, seed=43)) == GOLDEN["items"]
    assert shuffled(3540, seed=9, stream=0)[:6] == GOLDEN["shuffled"]


def test_balanced_demonstrations_are_nested() -> None:
    few, more = (
        choose_demonstrations(SET, LABELS, 6, seed=1),
        choose_demonstrations(SET, LABELS, 12, seed=1),
    )
    for some, others, label in zip(few, more, LABELS, strict=True):
        assert len(some) == 2 and len(others) == 4 and others[:2] == some
        assert {example.label for example in others} == {label}
        assert len({example.text for example in others}) == 4


def test_random_demonstrations_are_nested() -> None:
    def sample(number: int, seed: int) -> set[Example]:
        chosen = choose_demonstrations(SET, LABELS, number, "random", seed=seed)
        for examples, label in zip(chosen, LABELS, strict=True):
            assert {example.label for example in examples} <= {label}
        return {example for examples in chosen for example in examples}

    for seed in range(5):
        assert len(sample(1, seed)) == 1 and len(sample(7, seed)) == 7
        assert sample(1, seed) < sample(7, seed) < sample(15, seed) == set(SET)
    assert len({frozenset(sample(4, seed)) for seed in range(20)}) > 10


def test_an_exhausted_class_is_skipped() -> None:
    uneven = [example for example in SET if example.text not in ("a1", "a2", "a3", "a4")]
    assert [len(examples) for examples in choose_demonstrations(uneven, LABELS, 7, seed=0)] == [
        1,
        3,
        3,
    ]
    alternating = order_demonstrations(
        choose_demonstrations(uneven, LABELS, 7, seed=0), "alternating", seed=0
    )
    assert Counter(example.label for example in alternating) == {"a": 1, "b": 3, "c": 3}
    assert [example.label for example in alternating[3:]] in (["b", "c"] * 2, ["c", "b"] * 2)


def test_orders_are_permutations_that_differ_by_seed() -> None:
    chosen = choose_demonstrations(SET, LABELS, 15, seed=0)
    orders = {texts(order_demonstrations(chosen, "random", seed=seed)) for seed in range(10)}
    assert len(orders) == 10 and len({" ".join(sorted(order.split())) for order in orders}) == 1
    for seed in range(4):
        labels = [
            example.label for example in order_demonstrations(chosen, "alternating", seed=seed)
        ]
        assert labels == labels[:3] * 5 and sorted(labels[:3]) == list(LABELS)


def test_too_few_examples_are_refused() -> None:
    with pytest.raises(DataError, match=r"18 demonstrations.*15 examples"):
        choose_demonstrations(SET, LABELS, 18, seed=0)
    with pytest.raises(DataError, match="no example of label 'd'"):
        choose_demonstrations(SET, (*LABELS, "d"), 4, seed=0)
    with pytest.raises(DataError, match=r"18 demonstrations.*15 examples"):
        choose_demonstrations(SET, LABELS, 18, "random", seed=0)
    with pytest.raises(DataError, match=r"16 test_items.*15"):
        sample_items(SET, 16, seed=0)
