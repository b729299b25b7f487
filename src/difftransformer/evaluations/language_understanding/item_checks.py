"""That every item of a file can be asked, and what is wrong with one said in one line. Light."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import read_items
from difftransformer.evaluations.language_understanding.tasks import LANGUAGE_TASKS


def check_items(task: str, path: Path) -> None:
    """Check that every item of a file can be asked.

    Raises:
        DataError: Names the file, the line and the field.
    """
    empty, fields = True, LANGUAGE_TASKS[task].fields
    for place, item in read_items(path):
        empty = False
        for field in fields:
            if _value(item, field) in (None, []):
                needed = f"{task} needs {', '.join(fields)}"
                raise DataError(f"{place}: field '{field}' is missing; {needed}")
        there = {field: value for field, value in item.items() if value is not None}
        try:
            complaint = next(_complaints(task, there), None)
        except (AttributeError, TypeError) as error:
            complaint = f"a field has another type than {task} needs ({error})"
        if complaint is not None:
            raise DataError(f"{place}: {complaint}")
    if empty:
        raise DataError(f"{path}: holds no items")


def _complaints(task: str, item: dict[str, Any]) -> Iterator[str]:  # noqa: PLR0912 - a case a task
    """Yield what is wrong with an item: lm-eval would fail on it without naming the line."""
    for field, known in LANGUAGE_TASKS[task].values.items():
        if item[field] not in known:
            yield f"field '{field}' is {item[field]!r}, not {' or '.join(map(repr, known))}"
    match task:
        case "arc_challenge" | "arc_easy" | "openbookqa":
            labels = item["choices"]["label"]
            if item["answerKey"].strip() not in labels:
                yield f"field 'answerKey' {item['answerKey']!r} is none of {labels}"
            if len(item["choices"]["text"]) != len(labels):
                yield "fields 'choices.text' and 'choices.label' differ in length"
        case "hellaswag" if str(item["label"]) not in map(str, range(len(item["endings"]))):
            yield f"field 'label' is {item['label']!r}, not 0 to {len(item['endings']) - 1}"
        case "winogrande" if "_" not in item["sentence"]:
            yield "field 'sentence' has no blank '_'"
        case "wic" if not 0 <= item["start1"] < item["end1"] <= len(item["sentence1"]):
            yield "fields 'start1' and 'end1' are no part of sentence1"
        case "wsc" if not 0 <= item["span2_index"] < len(item["text"].split()):
            yield f"field 'span2_index' is {item['span2_index']}, no word of its text"
        case "mmlu" if len(item["choices"]) != 4:  # which lm-eval names A to D
            yield f"field 'choices' has {len(item['choices'])} answers, not 4"
        case "agieval_en" if item.get("answer") in (None, ""):
            if not {"choices", "gold"} <= item.keys():
                yield "needs 'answer', or 'choices' and 'gold'"
                return
            count = len(item["choices"])
            if not item["gold"] or not all(0 <= one < count for one in item["gold"]):
                yield f"field 'gold' is {item['gold']!r}, not among 0 to {count - 1}"
        case "ifeval":
            settings = item["kwargs"]
            whole = len(item["instruction_id_list"]) == len(settings)
            if not whole or not all(isinstance(one, dict) for one in settings):
                yield "fields 'instruction_id_list' and 'kwargs' differ in length"
        case "mbpp_plus" if len(item["test_list"]) < 3:  # which its prompt shows
            yield f"field 'test_list' has {len(item['test_list'])} tests, not 3"
        case "gsm8k" if "#### " not in item["answer"]:
            yield "field 'answer' does not end in '#### ' and a number"


def _value(item: Any, field: str) -> Any:
    """The value at a dotted key, None where there is none; HellaSwag has empty texts."""
    for key in field.split("."):
        item = item.get(key) if isinstance(item, dict) else None
    return item
