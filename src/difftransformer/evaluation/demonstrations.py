"""Which examples of a labelled set stand in a prompt, and in what order.

Both are computed from seeds by `data.order.SeededOrder`, so they are the same on every machine.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from difftransformer.data.order import SeededOrder
from difftransformer.errors import DataError


class Example(NamedTuple):
    """A text and its label."""

    text: str
    label: str


class LabelledSet(NamedTuple):
    """Examples to demonstrate and to ask, and all labels, sorted."""

    train: Sequence[Example]
    test: Sequence[Example]
    labels: Sequence[str]


def shuffled(size: int, *, seed: int, stream: int) -> list[int]:
    """Return permutation number (seed, stream) of 0..size-1."""
    if size == 0:
        return []
    order = SeededOrder(size, seed=seed, epoch=stream)
    return [int(index) for index in order(np.arange(size))]


def choose(
    examples: Sequence[Example], labels: Sequence[str], number: int, *, seed: int
) -> list[list[Example]]:
    """Choose demonstrations of each class, as equally many as the classes have.

    Classes give one example each in turn; one that has none left is passed over. Fewer
    demonstrations are a part of more.

    Returns:
        Examples of each label, in the order of the labels.

    Raises:
        DataError: There are fewer examples than asked for, or none of a label.
    """
    pools = _by_label(examples, labels)
    if number > len(examples):
        raise DataError(f"{number} demonstrations asked for, the set has {len(examples)} examples")
    taken: list[list[Example]] = [[] for _ in labels]
    orders = [shuffled(len(pool), seed=seed, stream=place) for place, pool in enumerate(pools)]
    left = number
    while left:
        for pool, order, chosen in zip(pools, orders, taken, strict=True):
            if left and len(chosen) < len(pool):
                chosen.append(pool[order[len(chosen)]])
                left -= 1
    return taken


def arrange(
    chosen: Sequence[Sequence[Example]], order: Literal["random", "alternating"], *, seed: int
) -> list[Example]:
    """Put demonstrations in an order.

    random: any permutation of them. alternating: the classes in turn, in a cycle that the seed
    draws, each with its examples in an order that the seed draws; a class that has run out is
    passed over.
    """
    if order == "random":
        flat = [example for examples in chosen for example in examples]
        return [flat[index] for index in shuffled(len(flat), seed=seed, stream=0)]
    within = [
        [examples[index] for index in shuffled(len(examples), seed=seed, stream=place + 1)]
        for place, examples in enumerate(chosen)
    ]
    cycle = [within[index] for index in shuffled(len(within), seed=seed, stream=0)]
    rounds = max((len(examples) for examples in cycle), default=0)
    return [examples[turn] for turn in range(rounds) for examples in cycle if turn < len(examples)]


def asked(examples: Sequence[Example], number: int, *, seed: int) -> list[Example]:
    """Choose items to ask, any of the set.

    Raises:
        DataError: There are fewer than asked for.
    """
    if number > len(examples):
        raise DataError(f"{number} test_items asked for, the set has {len(examples)}")
    return [examples[index] for index in shuffled(len(examples), seed=seed, stream=0)[:number]]


def _by_label(examples: Sequence[Example], labels: Sequence[str]) -> list[list[Example]]:
    found: dict[str, list[Example]] = {label: [] for label in labels}
    for example in examples:
        found[example.label].append(example)
    for label, pool in found.items():
        if not pool:
            raise DataError(f"no example of label '{label}' to demonstrate")
    return list(found.values())
