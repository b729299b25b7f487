"""The eight sets of mathematics: how an item of each, in the fields it is published in, is read.

One place for questions and answers: generated items and real ones go through the same functions, in
training text as in evaluation. Light: nothing is imported.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Item = dict[str, Any]

PROMPT = "Question: {question}\nAnswer:"
"""How a question is asked, without solved examples; generated training text begins like this."""

SOURCE = "https://github.com/QwenLM/Qwen2.5-Math/raw/a45202bd16/evaluation/data/{name}/test.jsonl"
"""Where all eight sets lie at one pinned commit, one item a line; their licenses differ."""


class MathSet(NamedTuple):
    """One set.

    Attributes:
        label: Head of its column.
        fields: Keys that an item must have.
        question: What an item asks.
        answer: Its answer as published, without explanation; LaTeX or plain.
        files: Names of files below the folder of the set; all that are there belong to it.
    """

    label: str
    fields: tuple[str, ...]
    question: Callable[[Item], str]
    answer: Callable[[Item], str]
    files: tuple[str, ...] = ("test",)


def boxed(text: str) -> str | None:
    r"""Return what the last ``\boxed{...}`` of a text holds, braces matched; None without one."""
    start = text.rfind(r"\boxed{")
    if start < 0:
        return None
    begin = start + len(r"\boxed{")
    depth = 1
    for place in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[begin:place]
    return None


def number(value: float | int | str) -> str:
    """Write a number that files hold as a float: 51.0 is 51."""
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
    found = boxed(str(item["solution"]))
    return "" if found is None else found


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
"""By the name of their folder, in the order of the paper's figure 10."""
