"""Items of language-understanding tasks in files: where they lie, and that each one is whole.

A folder holds ``<task>/<split>.jsonl`` or ``.jsonl.gz``, one item a line with the fields of the
data set on the hub. Our own few items lie in such a folder of this package. Light: planning reads
it.
"""

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from difftransformer.config.language_tasks import LANGUAGE_TASKS
from difftransformer.config.suites.language_understanding import LanguageUnderstanding
from difftransformer.errors import DataError

HUB, BUILTIN = "hub", "builtin"
SPLITS = ("train", "validation", "test")
_BUILTIN = Path(__file__).with_name("items")
_ENDINGS = (".jsonl", ".jsonl.gz")


def data_kind(data: str) -> str:
    """Say where items come from: "hub", "builtin" or "files"."""
    return data if data in (HUB, BUILTIN) else "files"


def task_files(task: str, data: str) -> dict[str, Path]:
    """Return the files of a task by split; none for the hub.

    Raises:
        DataError: The folder is missing, or holds nothing to evaluate the task on.
    """
    if data == HUB:
        return {}
    root = _BUILTIN if data == BUILTIN else Path(data).expanduser()
    if not root.is_dir():
        raise DataError(
            f"benchmarks: {root}: no such folder; name one with <task>/<split>.jsonl, 'hub' or "
            "'builtin'"
        )
    found = {split: path for split in SPLITS if (path := jsonl_file(root / task, split))}
    if not set(found) & {"validation", "test"}:
        raise DataError(
            f"benchmarks: {root / task}: holds neither validation.jsonl nor test.jsonl (or "
            f".jsonl.gz); put {task} there, or take it out of the suite's tasks"
        )
    return found


def jsonl_file(folder: Path, split: str) -> Path | None:
    """Return the file of a split's items, plain or compressed; None if there is none."""
    paths = (folder / f"{split}{ending}" for ending in _ENDINGS)
    return next((path for path in paths if path.is_file()), None)


def benchmark_files(suite: LanguageUnderstanding) -> list[Path]:
    """Return every file that a suite reads.

    Raises:
        DataError: As for `task_files`.
    """
    return [path for task in suite.tasks for path in task_files(task, suite.data).values()]


def benchmark_digest(suite: LanguageUnderstanding) -> str:
    """sha256 over the names and the content of every file that a suite reads."""
    digest = hashlib.sha256()
    for task in suite.tasks:
        for split, path in task_files(task, suite.data).items():
            digest.update(f"{task}/{split}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def check_items(task: str, path: Path) -> None:
    """Check that every item of a file can be asked.

    Raises:
        DataError: Names the file, the line and the field.
    """
    empty = True
    for number, line in item_lines(path):
        empty = False
        try:
            item = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}: line {number}: not JSON ({error})") from None
        for field in LANGUAGE_TASKS[task].fields:
            if _value(item, field) in (None, []):
                raise DataError(
                    f"{path}: line {number}: field '{field}' is missing; {task} needs "
                    f"{', '.join(LANGUAGE_TASKS[task].fields)}"
                )
        _check_answer(item, f"{path}: line {number}")
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


def item_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a file of items with their numbers, blank ones left out.

    Raises:
        DataError: The file cannot be read.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); put the file there again") from None


def first_line(error: Exception) -> str:
    """Name an error of a library in one line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
