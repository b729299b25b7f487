"""Checks of benchmark items in local files, before any model is loaded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import read_items
from difftransformer.evaluations.language_understanding.tasks import LANGUAGE_TASKS


def check_items(task: str, path: Path) -> None:
    """Check that lm-eval can evaluate every item in a task's file.

    Raises:
        DataError: An item is damaged; the message names the file, the line and the field.
    """
    empty, fields = True, LANGUAGE_TASKS[task].required_fields
    for location, item in read_items(path):
        empty = False
        for field in fields:
            if _value(item, field) in (None, []):
                requirement = f"{task} needs {', '.join(fields)}"
                raise DataError(f"{location}: field '{field}' is missing; {requirement}")
        present = {field: value for field, value in item.items() if value is not None}
        try:
            problem = next(_problems(task, present), None)
        except (AttributeError, TypeError) as error:
            problem = f"a field has the wrong type for {task} ({error})"
        if problem is not None:
            raise DataError(f"{location}: {problem}")
    if empty:
        raise DataError(f"{path}: contains no items")


def _problems(task: str, item: dict[str, Any]) -> Iterator[str]:  # noqa: PLR0912 - one case per task
    """Yield the problems of an item, on which lm-eval would fail without naming the line."""
    for field, allowed in LANGUAGE_TASKS[task].allowed_values.items():
        if item[field] not in allowed:
            yield f"field '{field}' is {item[field]!r}, not {' or '.join(map(repr, allowed))}"
    match task:
        case "arc_challenge" | "arc_easy" | "openbookqa":
            labels = item["choices"]["label"]
            if item["answerKey"].strip() not in labels:
                yield f"field 'answerKey' {item['answerKey']!r} is not one of {labels}"
            if len(item["choices"]["text"]) != len(labels):
                yield "fields 'choices.text' and 'choices.label' differ in length"
        case "hellaswag" if str(item["label"]) not in map(str, range(len(item["endings"]))):
            yield f"field 'label' is {item['label']!r}, not 0 to {len(item['endings']) - 1}"
        case "winogrande" if "_" not in item["sentence"]:
            yield "field 'sentence' has no blank '_'"
        case "wic" if not 0 <= item["start1"] < item["end1"] <= len(item["sentence1"]):
            yield "fields 'start1' and 'end1' are outside sentence1"
        case "wsc" if not 0 <= item["span2_index"] < len(item["text"].split()):
            yield f"field 'span2_index' is {item['span2_index']}, outside its text"
        case "mmlu" if len(item["choices"]) != 4:  # lm-eval names them A to D
            yield f"field 'choices' has {len(item['choices'])} answers, not 4"
        case "agieval_en" if item.get("answer") in (None, ""):
            if not {"choices", "gold"} <= item.keys():
                yield "needs 'answer', or 'choices' and 'gold'"
                return
            count = len(item["choices"])
            if not item["gold"] or not all(0 <= index < count for index in item["gold"]):
                yield f"field 'gold' is {item['gold']!r}, not among 0 to {count - 1}"
        case "ifeval":
            settings = item["kwargs"]
            same_length = len(item["instruction_id_list"]) == len(settings)
            if not same_length or not all(isinstance(index, dict) for index in settings):
                yield "fields 'instruction_id_list' and 'kwargs' differ in length"
        case "mbpp_plus" if len(item["test_list"]) < 3:  # its prompt shows them
            yield f"field 'test_list' has {len(item['test_list'])} tests, not 3"
        case "gsm8k" if "#### " not in item["answer"]:
            yield "field 'answer' does not end in '#### ' and a number"


def _value(item: Any, field: str) -> Any:
    """Return the value at a dotted key, or None; an empty text counts as a value (HellaSwag)."""
    for key in field.split("."):
        item = item.get(key) if isinstance(item, dict) else None
    return item
