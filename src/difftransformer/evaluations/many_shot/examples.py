"""Examples of a labeled set: where they come from, which stand in a prompt, and in what order.

They are of files, of the hub, or generated in the words of a dataset. A folder holds
``<task>/train.jsonl`` and ``test.jsonl``, or ``.jsonl.gz``, with the fields of the set on the hub.
Choice and order are computed from seeds by `data.loader.SeededOrder`, the same on every machine.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from difftransformer.config.generated_rows import ClassificationConfig
from difftransformer.data.classification import labeled_items
from difftransformer.data.loader import SeededOrder
from difftransformer.data.rows import row_words
from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import hub_items, read_items
from difftransformer.evaluations.many_shot.settings import ITEMS_SEED, SPLITS, Suite
from difftransformer.evaluations.many_shot.tasks import CLASSIFICATION_TASKS, ClassificationTask


class Example(NamedTuple):
    """A text and its label."""

    text: str
    label: str


class LabeledSet(NamedTuple):
    """Examples to demonstrate and to ask, and all labels, sorted."""

    train: Sequence[Example]
    test: Sequence[Example]
    labels: Sequence[str]


def open_sets(suite: Suite, rows: ClassificationConfig | None) -> Callable[[int], LabeledSet]:
    """Return what gives the set of each draw: one for all, or generated ones.

    Args:
        suite: Where items come from.
        rows: Settings of the dataset, for generated items.

    Raises:
        DataError: As for `labeled_set`.
    """
    if not suite.generated:
        read = labeled_set(suite)
        return lambda _: read
    assert rows is not None, suite.data
    words = row_words(rows)
    return lambda draw: generated_set(suite, rows, words, draw)


def labeled_set(suite: Suite) -> LabeledSet:
    """Read the set of a suite from its folder or from the hub.

    Raises:
        DataError: Items are missing or damaged, or the hub cannot be reached; names the place.
    """
    task, files = CLASSIFICATION_TASKS[suite.task], suite.files()
    train, test = (
        [
            [one for place, item in read_items(path) for one in _example(task, item, place)]
            for path in files.values()
        ]
        if files
        else [list(_from_hub(task, split)) for split in SPLITS]
    )
    labels = sorted({example.label for example in train})
    where = files.get("train", task.dataset)
    if len(labels) != task.classes:
        raise DataError(f"{where}: has {len(labels)} labels, {task.title} has {task.classes}")
    for example in test:
        if example.label not in labels:
            raise DataError(f"{where}: no example of label '{example.label}', which is asked for")
    if not test:
        raise DataError(f"{files.get('test', task.dataset)}: holds no items to ask")
    return LabeledSet(train, test, labels)


def generated_set(
    suite: Suite, rows: ClassificationConfig, words: list[str], draw: int
) -> LabeledSet:
    """Make a set of the run's own words: its classes, their labels, as many examples as needed.

    Args:
        suite: Classes, largest number of demonstrations and how often their words stray, items.
        rows: Vocabulary and length of an item.
        words: Word of each token id.
        draw: Number of the draw; each has classes and labels of its own.
    """
    generator = np.random.default_rng([ITEMS_SEED, suite.num_classes, draw])
    most = max(suite.demonstrations)
    balanced = np.arange(most) % suite.num_classes
    tested = generator.integers(0, suite.num_classes, size=suite.test_items)
    drawn = np.concatenate((balanced, tested))
    strays = np.where(np.arange(len(drawn)) < most, suite.word_noise, 0.0)
    items = labeled_items(rows, drawn[None], generator, strays[None])
    examples = [
        Example(" ".join(words[token] for token in text), words[label])
        for text, label in zip(items.words[0].tolist(), items.labels[0].tolist(), strict=True)
    ]
    train, test = examples[:most], examples[most:]
    return LabeledSet(train, test, sorted({example.label for example in train}))


def shuffled(size: int, *, seed: int, stream: int) -> list[int]:
    """Return permutation number (seed, stream) of 0..size-1."""
    if size == 0:
        return []
    order = SeededOrder(size, seed=seed, epoch=stream)
    return [int(index) for index in order(np.arange(size))]


def choose(
    examples: Sequence[Example],
    labels: Sequence[str],
    number: int,
    selection: Literal["balanced", "random"] = "balanced",
    *,
    seed: int,
) -> list[list[Example]]:
    """Choose demonstrations, of each class as equally many as the classes have, or any.

    Balanced, classes give one example each in turn; one that has none left is passed over. Either
    way fewer demonstrations are a part of more.

    Returns:
        Examples of each label, in the order of the labels.

    Raises:
        DataError: There are fewer examples than asked for, or none of a label.
    """
    pools = [[example for example in examples if example.label == label] for label in labels]
    for label, pool in zip(labels, pools, strict=True):
        if not pool:
            raise DataError(f"no example of label '{label}' to demonstrate")
    if number > len(examples):
        raise DataError(f"{number} demonstrations asked for, the set has {len(examples)} examples")
    if selection == "random":
        some = [examples[index] for index in shuffled(len(examples), seed=seed, stream=0)[:number]]
        return [[example for example in some if example.label == label] for label in labels]
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


def _from_hub(task: ClassificationTask, split: str) -> Iterable[Example]:
    """Examples of a split on the hub, names in place of the numbers of labels."""
    from datasets import ClassLabel, load_dataset

    with hub_items(task.title, task.dataset):
        loaded = load_dataset(task.dataset, task.config, split=split, revision=task.revision)
    kind = loaded.features.get(task.field)
    named = isinstance(kind, ClassLabel) and not task.labels
    for number, item in enumerate(loaded):
        name = {task.field: kind.int2str(item[task.field])} if named else {}
        yield from _example(task, {**item, **name}, f"{task.dataset}: {split} item {number}")


def _example(task: ClassificationTask, item: Any, place: str) -> Iterator[Example]:
    """The example of an item; none where it is of no class."""
    if not isinstance(item, dict):
        raise DataError(f"{place}: not a mapping, got {str(item)[:60]!r}")
    for field in ("text", task.field):
        if item.get(field) in (None, ""):
            raise DataError(f"{place}: field '{field}' is missing; needs text and {task.field}")
    label = item[task.field]
    if task.labels:
        if not isinstance(label, int) or not 0 <= label < len(task.labels):
            raise DataError(
                f"{place}: field '{task.field}' is {label!r}, not 0 to {len(task.labels) - 1}"
            )
        label = task.labels[label]
    if label != task.outside:
        yield Example(" ".join(str(item["text"]).split()), str(label).replace("_", " "))
