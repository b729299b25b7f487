"""Labelled sets from files, from the hub, or generated in the words of a dataset.

A folder holds ``<task>/train.jsonl`` and ``test.jsonl``, or ``.jsonl.gz``, with the fields of the
set on the hub. Light as long as nothing is read: planning looks at the files.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from difftransformer.config.classification import ClassificationConfig
from difftransformer.config.classification_tasks import CLASSIFICATION_TASKS, ClassificationTask
from difftransformer.config.suites.in_context_learning import InContextLearning
from difftransformer.data.classification import labelled_items
from difftransformer.data.words import row_words
from difftransformer.errors import DataError
from difftransformer.evaluation.demonstrations import Example, LabelledSet
from difftransformer.evaluation.item_files import (
    HUB,
    MissingItemsError,
    item_lines,
    jsonl_file,
    parsed,
)

SPLITS = ("train", "test")


def labelled_files(suite: InContextLearning) -> list[Path]:
    """Files that a suite reads; none for the hub and for generated items.

    Raises:
        DataError: The folder is missing.
        MissingItemsError: It lacks a split of the task.
    """
    if suite.generated or suite.data == HUB:
        return []
    root = Path(suite.data).expanduser()
    if not root.is_dir():
        raise DataError(
            f"benchmarks: {root}: no such folder; name one with <task>/train.jsonl and "
            "test.jsonl, or 'hub'"
        )
    folder = root / CLASSIFICATION_TASKS[suite.task].folder
    files = [jsonl_file(folder, split) for split in SPLITS]
    for split, path in zip(SPLITS, files, strict=True):
        if path is None:
            raise MissingItemsError(
                f"benchmarks: {folder}: holds no {split}.jsonl (or .jsonl.gz), which "
                f"{suite.task} needs; put it there, or set `data` of the suite to hub",
                folder / f"{split}.jsonl",
            )
    return [path for path in files if path is not None]


def open_sets(
    suite: InContextLearning, rows: ClassificationConfig | None
) -> Callable[[int], LabelledSet]:
    """Return what gives the set of each draw: one for all, or generated ones.

    Args:
        suite: Where items come from.
        rows: Settings of the dataset, for generated items.

    Raises:
        DataError: As for `labelled_set`.
    """
    if not suite.generated:
        read = labelled_set(suite)
        return lambda _: read
    assert rows is not None, suite.data
    words = row_words(rows)
    return lambda draw: generated_set(suite, rows, words, draw)


def labelled_set(suite: InContextLearning) -> LabelledSet:
    """Read the set of a suite from its folder or from the hub.

    Raises:
        DataError: Items are missing or damaged, or the hub cannot be reached; names the place.
    """
    task, files = CLASSIFICATION_TASKS[suite.task], labelled_files(suite)
    items = (
        [list(_from_file(task, path)) for path in files]
        if files
        else [list(_from_hub(task, split)) for split in SPLITS]
    )
    train, test = items
    labels = sorted({example.label for example in train})
    where = files[0] if files else task.dataset
    if len(labels) != task.classes:
        raise DataError(f"{where}: has {len(labels)} labels, {task.title} has {task.classes}")
    for example in test:
        if example.label not in labels:
            raise DataError(f"{where}: no example of label '{example.label}', which is asked for")
    if not test:
        raise DataError(f"{files[1] if files else task.dataset}: holds no items to ask")
    return LabelledSet(train, test, labels)


def generated_set(
    suite: InContextLearning, rows: ClassificationConfig, words: list[str], draw: int
) -> LabelledSet:
    """Make a set of the run's own words: its classes, their labels, as many examples as needed.

    Args:
        suite: Classes, largest number of demonstrations and how often their words stray, items.
        rows: Vocabulary and length of an item.
        words: Word of each token id.
        draw: Number of the draw; each has classes and labels of its own.
    """
    generator = np.random.default_rng([suite.items_seed, suite.num_classes, draw])
    most = max(suite.demonstrations)
    balanced = np.arange(most) % suite.num_classes
    tested = generator.integers(0, suite.num_classes, size=suite.test_items)
    drawn = np.concatenate((balanced, tested))
    strays = np.where(np.arange(len(drawn)) < most, suite.stray_words, 0.0)
    items = labelled_items(rows, drawn[None], generator, strays[None])
    examples = [
        Example(" ".join(words[token] for token in text), words[label])
        for text, label in zip(items.words[0].tolist(), items.labels[0].tolist(), strict=True)
    ]
    train, test = examples[:most], examples[most:]
    return LabelledSet(train, test, sorted({example.label for example in train}))


def _from_file(task: ClassificationTask, path: Path) -> Iterator[Example]:
    for number, line in item_lines(path):
        place = f"{path}: line {number}"
        yield from _example(task, parsed(line, place), place)


def _from_hub(task: ClassificationTask, split: str) -> Iterable[Example]:
    """Examples of a split on the hub, names in place of the numbers of labels."""
    from datasets import ClassLabel, load_dataset

    try:
        loaded = load_dataset(task.dataset, task.config, split=split, revision=task.revision)
    except Exception as error:  # the hub, the network and `datasets` fail in many ways
        reason = (str(error).splitlines() or [""])[0][:200]
        raise DataError(
            f"{task.title}: {task.dataset} cannot be had from the Hugging Face hub "
            f"({type(error).__name__}: {reason}); check the network, or set `benchmarks` to a "
            "folder with its items"
        ) from None
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
