"""The eight mathematics data sets: question and answer of an item from its published fields.

Generated and real items use the same functions, in training text and in evaluation. The
module imports no large library.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Item = dict[str, Any]

PROMPT = "Question: {question}\nAnswer:"
"""Zero-shot prompt; generated training documents begin with it."""

SOURCE = "https://github.com/QwenLM/Qwen2.5-Math/raw/a45202bd16/evaluation/data/{name}/test.jsonl"
"""URL of the data sets at a pinned commit, one item per line; their licenses differ."""


class MathSet(NamedTuple):
    """A mathematics data set, with functions that read its items.

    Attributes:
        label: Header of the data set's column in tables.
        fields: Required keys of an item.
        question: Function that returns the question of an item.
        answer: Function that returns an item's published answer without explanation, in LaTeX or
            as plain text.
        files: Names of the data set's files without endings; all that exist are read.
    """

    label: str
    fields: tuple[str, ...]
    question: Callable[[Item], str]
    answer: Callable[[Item], str]
    files: tuple[str, ...] = ("test",)


def boxed(text: str) -> str | None:
    r"""Return the content of the last ``\boxed{...}`` of a text, or None if there is none."""
    start = text.rfind(r"\boxed{")
    if start < 0:
        return None
    begin = start + len(r"\boxed{")
    depth = 1
    for index in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return text[begin:index]
    return None


def number(value: float | int | str) -> str:
    """Return a number stored as a float as text, without a decimal point if it is whole."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _text(field: str) -> Callable[[Item], str]:
    return lambda item: str(item[field])


def _number(field: str) -> Callable[[Item], str]:
    return lambda item: number(item[field])


def _two_sentences(*fields: str) -> Callable[[Item], str]:
    def join(item: Item) -> str:
        first, second = (item[field].strip() for field in fields)
        return f"{first if first.endswith(('.', '?', '!', ',')) else first + '.'} {second}"

    return join


def _table_question(item: Item) -> str:
    title = f"{item['table_title']}\n" if item.get("table_title") else ""
    choices = f"\nOptions: {', '.join(item['choices'])}" if item.get("choices") else ""
    return f"{title}{item['table']}\n{item['question']}{choices}"


def _last_line_answer(item: Item) -> str:
    return str(item["answer"]).rpartition("####")[2].strip()


def _without_unit(item: Item) -> str:
    return str(item["answer"]).partition(" (")[0].strip()


def _boxed_answer(item: Item) -> str:
    return boxed(str(item["solution"])) or ""


_SUBJECTS = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra"),
    *("number_theory", "prealgebra", "precalculus"),
)
_MATH_FILES = ("test", *(f"{subject}.test" for subject in _SUBJECTS))

MATH_SETS = {
    "gsm8k": MathSet("GSM8K", ("question", "answer"), _text("question"), _last_line_answer),
    "math": MathSet("MATH", ("problem", "solution"), _text("problem"), _boxed_answer, _MATH_FILES),
    "svamp": MathSet(
        "SVAMP",
        ("Body", "Question", "Answer"),
        _two_sentences("Body", "Question"),
        _number("Answer"),
    ),
    "asdiv": MathSet(
        "ASDiv", ("body", "question", "answer"), _two_sentences("body", "question"), _without_unit
    ),
    "mawps": MathSet("MAWPS", ("input", "target"), _text("input"), _number("target")),
    "carp_en": MathSet("CARP", ("content", "answer"), _text("content"), _text("answer")),
    "tabmwp": MathSet("TabMWP", ("question", "table", "answer"), _table_question, _text("answer")),
    "college_math": MathSet(
        "CollegeMath", ("question", "answer"), _text("question"), _text("answer")
    ),
}
"""The data sets by folder name, in the order of the paper's figure 10."""
