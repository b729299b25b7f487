"""That every item of a file can be asked, and what is wrong with one said in one line. Light."""

from pathlib import Path
from typing import Any

from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import item_lines, parsed
from difftransformer.measurements.language_understanding.tasks import LANGUAGE_TASKS, LanguageTask


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
        item = {field: value for field, value in item.items() if value is not None}
        try:
            _CHECKS.get(task, _check_answer)(item, place)
            _check_values(item, LANGUAGE_TASKS[task], place)
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
    elif "hypothesis" not in item:
        choices = len(item.get("endings", "ny"))
        if str(item["label"]) not in {str(index) for index in range(choices)}:
            raise DataError(f"{place}: field 'label' is {item['label']!r}, not 0 to {choices - 1}")


def _check_choices(item: dict[str, Any], place: str) -> None:
    """MMLU's, whose four answers lm-eval names A to D."""
    if len(item["choices"]) != 4:
        raise DataError(f"{place}: field 'choices' has {len(item['choices'])} answers, not 4")


def _check_exam(item: dict[str, Any], place: str) -> None:
    """AGIEval's: an answer in words, or places among given ones."""
    if item.get("answer") not in (None, ""):
        return
    if not {"choices", "gold"} <= item.keys():
        raise DataError(f"{place}: needs 'answer', or 'choices' and 'gold'")
    count = len(item["choices"])
    if not item["gold"] or not all(0 <= one < count for one in item["gold"]):
        raise DataError(f"{place}: field 'gold' is {item['gold']!r}, not among 0 to {count - 1}")


def _check_instructions(item: dict[str, Any], place: str) -> None:
    names, settings = item["instruction_id_list"], item["kwargs"]
    if len(names) != len(settings) or not all(isinstance(one, dict) for one in settings):
        raise DataError(f"{place}: fields 'instruction_id_list' and 'kwargs' differ in length")


def _check_program(item: dict[str, Any], place: str) -> None:
    """MBPP's; lm-eval's prompt shows three of its tests."""
    if len(item["test_list"]) < 3:
        raise DataError(f"{place}: field 'test_list' has {len(item['test_list'])} tests, not 3")


def _check_worked(item: dict[str, Any], place: str) -> None:
    if "#### " not in item["answer"]:
        raise DataError(f"{place}: field 'answer' does not end in '#### ' and a number")


_CHECKS = {
    "mmlu": _check_choices,
    "agieval_en": _check_exam,
    "ifeval": _check_instructions,
    "mbpp_plus": _check_program,
    "gsm8k": _check_worked,
}


def _check_values(item: dict[str, Any], task: LanguageTask, place: str) -> None:
    """Other fields that lm-eval looks up, or cuts texts by."""
    for field, known in task.values.items():
        if item[field] not in known:
            raise DataError(
                f"{place}: field '{field}' is {item[field]!r}, not {' or '.join(map(repr, known))}"
            )
    if "span2_index" in item and not 0 <= item["span2_index"] < len(item["text"].split()):
        raise DataError(
            f"{place}: field 'span2_index' is {item['span2_index']}, no word of its text"
        )
    if "start1" in item and not 0 <= item["start1"] < item["end1"] <= len(item["sentence1"]):
        raise DataError(f"{place}: fields 'start1' and 'end1' are no part of sentence1")


def _value(item: Any, field: str) -> Any:
    """The value at a dotted key, None where there is none; HellaSwag has empty texts."""
    for key in field.split("."):
        item = item.get(key) if isinstance(item, dict) else None
    return item
