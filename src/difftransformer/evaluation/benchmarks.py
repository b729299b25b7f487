"""Items of language-understanding tasks in files: where they lie, and that each one is whole.

A folder holds ``<task>/<split>.jsonl`` or ``.jsonl.gz``, one item a line with the fields of the
data set on the hub. Our own few items lie in such a folder of this package. Light: planning reads
it.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from difftransformer.config.language_tasks import LANGUAGE_TASKS
from difftransformer.config.suites.language_understanding import LanguageUnderstanding
from difftransformer.config.suites.mathematics import Mathematics
from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import (
    BUILTIN,
    HUB,
    MissingItemsError,
    item_lines,
    items_folder,
    jsonl_file,
    parsed,
)
from difftransformer.evaluation.math_items import set_files
from difftransformer.provenance.published import SUMS, require_published

BenchmarkSuite = LanguageUnderstanding | Mathematics
"""Suites whose items may lie in files."""

SPLITS = ("train", "validation", "test")
_BUILTIN = Path(__file__).with_name("items")
"""Our own items, with their digests in items.sha256.json, which `publish` writes."""


def task_files(task: str, data: str) -> dict[str, Path]:
    """Return the files of a task by split; none for the hub.

    Raises:
        DataError: The folder is missing, or our own items were changed.
        MissingItemsError: It holds nothing to evaluate the task on.
    """
    if data == HUB:
        return {}
    root = _BUILTIN if data == BUILTIN else items_folder(data)
    found = {split: path for split in SPLITS if (path := jsonl_file(root / task, split))}
    if data == BUILTIN:
        for path in found.values():
            require_published(path, _BUILTIN / f"items{SUMS}", "install the package again")
    if not set(found) & {"validation", "test"}:
        raise MissingItemsError(
            f"benchmarks: {root / task}: holds neither validation.jsonl nor test.jsonl (or "
            f".jsonl.gz); put {task} there, or take it out of the suite's tasks",
            root / task / "validation.jsonl",
        )
    return found


def benchmark_files(suite: BenchmarkSuite) -> list[Path]:
    """Return every file that a suite reads.

    Raises:
        DataError: The folder is missing, or lacks a task.
    """
    return [path for _, path in _named_files(suite)]


def benchmark_digest(suite: BenchmarkSuite) -> str:
    """sha256 over the names and the content of every file that a suite reads."""
    digest = hashlib.sha256()
    for name, path in _named_files(suite):
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _named_files(suite: BenchmarkSuite) -> Iterator[tuple[str, Path]]:
    """Files under names that do not change with the folder they lie in."""
    for task in suite.tasks:
        if isinstance(suite, Mathematics):
            for path in set_files(task, suite.data):
                yield f"{task}/{path.name.partition('.jsonl')[0]}", path
        else:
            for split, path in task_files(task, suite.data).items():
                yield f"{task}/{split}", path


def check_items(task: str, path: Path) -> None:
    """Check that every item of a file can be asked.

    Raises:
        DataError: Names the file, the line and the field.
    """
    empty = True
    for number, line in item_lines(path):
        empty, place = False, f"{path}: line {number}"
        item = parsed(line, place)
        for field in LANGUAGE_TASKS[task].fields:
            if _value(item, field) in (None, []):
                raise DataError(
                    f"{place}: field '{field}' is missing; {task} needs "
                    f"{', '.join(LANGUAGE_TASKS[task].fields)}"
                )
        try:
            _check_answer(item, place)
        except (AttributeError, TypeError) as error:
            raise DataError(
                f"{place}: a field has another type than {task} needs ({error})"
            ) from None
    if empty:
        raise DataError(f"{path}: holds no items")


def _check_answer(item: dict[str, Any], place: str) -> None:
    """The answers that lm-eval would look up, which fail there without a line."""
    if "choices" in item:
        labels = item["choices"]["label"]
        if item["answerKey"].strip() not in labels:
            raise DataError(f"{place}: field 'answerKey' {item['answerKey']!r} is none of {labels}")
        if len(item["choices"]["text"]) != len(labels):
            raise DataError(f"{place}: fields 'choices.text' and 'choices.label' differ in length")
    elif "sentence" in item:
        if "_" not in item["sentence"]:
            raise DataError(f"{place}: field 'sentence' has no blank '_'")
        if item["answer"] not in ("1", "2"):
            raise DataError(f"{place}: field 'answer' is {item['answer']!r}, not '1' or '2'")
    else:
        choices = len(item.get("endings", "ny"))
        if str(item["label"]) not in {str(index) for index in range(choices)}:
            raise DataError(f"{place}: field 'label' is {item['label']!r}, not 0 to {choices - 1}")


def _value(item: Any, field: str) -> Any:
    """The value at a dotted key, None where there is none; HellaSwag has empty texts."""
    for key in field.split("."):
        item = item.get(key) if isinstance(item, dict) else None
    return item
