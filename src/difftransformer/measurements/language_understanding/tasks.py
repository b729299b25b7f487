"""The tasks: columns, metrics, pinned data, and their items in files.

A folder of items holds ``<task>/<split>.jsonl`` or ``.jsonl.gz``, one item a line with the fields
of the data set on the hub. Our own few items lie in such a folder beside this file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

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
from difftransformer.provenance.published import SUMS, require_published


class LanguageTask(NamedTuple):
    """One task of lm-eval, as the tables use it.

    Attributes:
        label: Head of its column.
        metric: Metric of lm-eval that the column shows.
        folder: Folder of the task below those bundled with lm-eval.
        tokens: Of all its items, a prompt with each answer, for plans: a quarter of their letters.
        dataset: Where lm-eval loads it from, for messages.
        revision: Commit of that data set on the hub.
        fields: Keys that an item in a file must have; a dot leads into a mapping.
        values: What some of them may be, for those that lm-eval looks up.
    """

    label: str
    metric: str
    folder: str
    tokens: int
    dataset: str
    revision: str
    fields: tuple[str, ...]
    values: Mapping[str, Sequence[Any]] = MappingProxyType({})


_CHOICES = ("choices.text", "choices.label", "answerKey")
_ARC_COMMIT = "210d026faf9955653af8916fad021475a3f00453"
_ARC = ("allenai/ai2_arc", _ARC_COMMIT, ("question", *_CHOICES))

_SUPER_GLUE = ("aps/super_glue", "3de24cf8022e94f4ee4b9d55a6f539891524d646")

LANGUAGE_TASKS = {
    "arc_challenge": LanguageTask("ARC-C", "acc", "arc", 212_000, *_ARC),
    "arc_easy": LanguageTask("ARC-E", "acc", "arc", 371_000, *_ARC),
    "boolq": LanguageTask(
        "BoolQ", "acc", "super_glue/boolq", 1_065_000, *_SUPER_GLUE,
        ("question", "passage", "label"),
    ),
    "hellaswag": LanguageTask(
        "HellaSwag", "acc_norm", "hellaswag", 3_606_000,
        "Rowan/hellaswag", "218ec52e09a7e7462a5400043bb9a69a41d06b76",
        ("activity_label", "ctx_a", "ctx_b", "endings", "label"),
    ),
    "openbookqa": LanguageTask(
        "OBQA", "acc", "openbookqa", 46_000,
        "allenai/openbookqa", "388097ea7776314e93a529163e0fea805b8a6454",
        ("question_stem", *_CHOICES),
    ),
    "piqa": LanguageTask(
        "PIQA", "acc", "piqa", 142_000,
        "baber/piqa", "142f6d7367fd9877f0fb3b5734ea6a545f54cdd1",
        ("goal", "sol1", "sol2", "label"),
    ),
    "winogrande": LanguageTask(
        "WinoGrande", "acc", "winogrande", 68_000,
        "allenai/winogrande", "01e74176c63542e6b0bcb004dcdea22d94fb67b5",
        ("sentence", "option1", "option2", "answer"),
    ),
    "copa": LanguageTask(
        "COPA", "acc", "super_glue/copa", 4_000, *_SUPER_GLUE,
        ("premise", "choice1", "choice2", "question", "label"), {"question": ("cause", "effect")},
    ),
    "mnli": LanguageTask(
        "MNLI", "acc", "glue/mnli", 1_472_000,
        "nyu-mll/glue", "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c",
        ("premise", "hypothesis", "label"), {"label": (0, 1, 2)},
    ),
    "wic": LanguageTask(
        "WiC", "acc", "super_glue/wic", 59_000, *_SUPER_GLUE,
        ("sentence1", "sentence2", "start1", "end1", "label"),
    ),
    "wsc": LanguageTask(
        "WSC", "acc", "super_glue/wsc", 15_000, *_SUPER_GLUE,
        ("text", "span1_text", "span2_text", "span2_index", "label"),
    ),
}  # fmt: skip
"""By lm-eval's name: the seven of Differential Transformer in the order of its tables, and four
more of Dex. Neither says which metric it prints. `acc` everywhere but for HellaSwag is inferred
from the former's OpenLLaMA row, whose numbers stand with their metric in the README of
openlm-research/open_llama; a suite may ask for others."""
DIFF_TASKS = tuple(LANGUAGE_TASKS)[:7]
"""Those of Differential Transformer, tables 1 and 8."""

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
