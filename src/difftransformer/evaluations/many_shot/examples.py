"""Labeled examples: read or generate them, choose demonstrations, and order them.

Examples come from files, from the hub, or are generated in the words of a dataset. A folder holds
``<task>/train.jsonl`` and ``test.jsonl``, or ``.jsonl.gz``, with the fields of the set on the hub.
Choice and order are computed from seeds by `data.loader.SeededOrder`, the same on every machine.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
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
    """A labeled set: examples to demonstrate, test examples, and all labels in sorted order."""

    train: Sequence[Example]
    test: Sequence[Example]
    labels: Sequence[str]


def open_sets(suite: Suite, rows: ClassificationConfig | None) -> Callable[[int], LabeledSet]:
    """Return a function that maps the index of a draw to its labeled set.

    A draw is one choice of demonstrations and test items. All draws share the set that a suite
    reads from files or the hub; for a generated set, each draw has a set of its own. ``rows`` are
    the settings of the dataset in whose words a set is generated, else None.
    """
    if not suite.generated:
        dataset = labeled_set(suite)
        return lambda _: dataset
    assert rows is not None, suite.data
    words = row_words(rows)
    return lambda draw: generated_set(suite, rows, words, draw)


def labeled_set(suite: Suite) -> LabeledSet:
    """Return a suite's labeled set, read from its folder or from the hub.

    Raises:
        DataError: Items are missing or damaged, or the hub cannot be reached; the message names the
            location.
    """
    task, files = CLASSIFICATION_TASKS[suite.task], suite.files()
    train, test = (
        [
            [
                example
                for location, item in read_items(path)
                for example in _example(task, item, location)
            ]
            for path in files.values()
        ]
        if files
        else [list(_from_hub(task, split)) for split in SPLITS]
    )
    labels = sorted({example.label for example in train})
    source = files.get("train", task.dataset)
    if len(labels) != task.classes:
        raise DataError(f"{source}: has {len(labels)} labels, {task.title} has {task.classes}")
    for example in test:
        if example.label not in labels:
            raise DataError(
                f"{source}: no example of label '{example.label}', which a test item has"
            )
    if not test:
        raise DataError(f"{files.get('test', task.dataset)}: holds no test items")
    return LabeledSet(train, test, labels)


def generated_set(
    suite: Suite, rows: ClassificationConfig, words: list[str], draw: int
) -> LabeledSet:
    """Return the generated labeled set of a draw, which has its own classes and labels.

    Args:
        suite: Settings with the numbers of classes, demonstrations and test items, and the noise
            of demonstrations.
        rows: Settings of the dataset: vocabulary and length of an item.
        words: Word of each token id.
        draw: Index of the draw.
    """
    generator = np.random.default_rng([ITEMS_SEED, suite.num_classes, draw])
    max_shots = max(suite.demonstrations)
    balanced = np.arange(max_shots) % suite.num_classes
    test_classes = generator.integers(0, suite.num_classes, size=suite.test_items)
    classes = np.concatenate((balanced, test_classes))
    noise = np.where(np.arange(len(classes)) < max_shots, suite.word_noise, 0.0)
    items = labeled_items(rows, classes[None], generator, noise[None])
    examples = [
        Example(" ".join(words[token] for token in text), words[label])
        for text, label in zip(items.words[0].tolist(), items.labels[0].tolist(), strict=True)
    ]
    train, test = examples[:max_shots], examples[max_shots:]
    return LabeledSet(train, test, sorted({example.label for example in train}))


def shuffled(size: int, *, seed: int, stream: int) -> list[int]:
    """Return the permutation of 0, ..., size - 1 for a seed and a stream number."""
    if size == 0:
        return []
    order = SeededOrder(size, seed=seed, epoch=stream)
    return [int(index) for index in order(np.arange(size))]


def choose_demonstrations(
    examples: Sequence[Example],
    labels: Sequence[str],
    number: int,
    selection: Literal["balanced", "random"] = "balanced",
    *,
    seed: int,
) -> list[list[Example]]:
    """Return ``number`` chosen demonstrations by label, balanced over classes or at random.

    Balanced: each class in turn gives an example; a class without examples left is skipped. A
    smaller number of demonstrations is a subset of a larger one.

    Returns:
        List of the examples of each label, in the order of ``labels``.

    Raises:
        DataError: There are fewer examples than ``number``, or no example of a label.
    """
    pools = [[example for example in examples if example.label == label] for label in labels]
    for label, pool in zip(labels, pools, strict=True):
        if not pool:
            raise DataError(f"no example of label '{label}' to demonstrate")
    if number > len(examples):
        raise DataError(f"{number} demonstrations requested, the set has {len(examples)} examples")
    if selection == "random":
        order = shuffled(len(examples), seed=seed, stream=0)
        sample = [examples[index] for index in order[:number]]
        return [[example for example in sample if example.label == label] for label in labels]
    chosen: list[list[Example]] = [[] for _ in labels]
    orders = [shuffled(len(pool), seed=seed, stream=label) for label, pool in enumerate(pools)]
    remaining = number
    while remaining:
        for pool, order, class_examples in zip(pools, orders, chosen, strict=True):
            if remaining and len(class_examples) < len(pool):
                class_examples.append(pool[order[len(class_examples)]])
                remaining -= 1
    return chosen


def order_demonstrations(
    chosen: Sequence[Sequence[Example]], order: Literal["random", "alternating"], *, seed: int
) -> list[Example]:
    """Return demonstrations in one list, in the order that a seed determines.

    Order "random" is a random permutation. In order "alternating" the classes take turns in a
    random cycle, each with its examples in random order; a class without examples left is skipped.
    """
    if order == "random":
        flat = [example for examples in chosen for example in examples]
        return [flat[index] for index in shuffled(len(flat), seed=seed, stream=0)]
    by_class = [
        [examples[index] for index in shuffled(len(examples), seed=seed, stream=label_index + 1)]
        for label_index, examples in enumerate(chosen)
    ]
    cycle = [by_class[index] for index in shuffled(len(by_class), seed=seed, stream=0)]
    padded = zip_longest(*cycle)
    return [example for examples in padded for example in examples if example is not None]


def sample_items(examples: Sequence[Example], number: int, *, seed: int) -> list[Example]:
    """Return ``number`` test items, chosen at random.

    Raises:
        DataError: There are fewer examples than ``number``.
    """
    if number > len(examples):
        raise DataError(f"{number} test_items requested, the set has {len(examples)}")
    return [examples[index] for index in shuffled(len(examples), seed=seed, stream=0)[:number]]


def _from_hub(task: ClassificationTask, split: str) -> Iterable[Example]:
    """Yield the examples of a split on the hub, with the names of labels for their numbers."""
    from datasets import ClassLabel, load_dataset

    with hub_items(task.title, task.dataset):
        loaded = load_dataset(task.dataset, task.config, split=split, revision=task.revision)
    feature = loaded.features.get(task.field)
    named = isinstance(feature, ClassLabel) and not task.labels
    for number, item in enumerate(loaded):
        name = {task.field: feature.int2str(item[task.field])} if named else {}
        yield from _example(task, {**item, **name}, f"{task.dataset}: {split} item {number}")


def _example(task: ClassificationTask, item: Any, location: str) -> Iterator[Example]:
    """Yield the example of an item, or nothing if it belongs to no class."""
    if not isinstance(item, dict):
        raise DataError(f"{location}: not a mapping, got {str(item)[:60]!r}")
    for field in ("text", task.field):
        if item.get(field) in (None, ""):
            raise DataError(f"{location}: field '{field}' is missing; needs text and {task.field}")
    label = item[task.field]
    if task.labels:
        if not isinstance(label, int) or not 0 <= label < len(task.labels):
            raise DataError(
                f"{location}: field '{task.field}' is {label!r}, not 0 to {len(task.labels) - 1}"
            )
        label = task.labels[label]
    if label != task.outside:
        yield Example(" ".join(str(item["text"]).split()), str(label).replace("_", " "))
