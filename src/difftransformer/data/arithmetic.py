"""Generated arithmetic with worked steps: eight families, one per mathematics data set.

An item has the fields of the data set it imitates, so prompts and scoring are the same. Numbers are
small, every step is an equation of two numbers, and no text is copied from the data sets. Questions
are split by their SHA-256: no question is in both training and evaluation.
"""

import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from difftransformer.data.documents import in_validation
from difftransformer.data.math_sets import MATH_SETS, PROMPT, Item
from difftransformer.errors import DataError

VALIDATION_SHARE = 0.1
"""Share of all questions that are held out for evaluation."""

_NAMES = ("Ann", "Ben", "Eva", "Max", "Tom")
_THINGS = ("books", "cards", "coins", "keys", "pens")  # wording: ok
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
}
_INVERSE = {"+": "-", "-": "+", "*": "/", "/": "*"}
_TRIES = 50_000
"""Number of problems drawn before a family is considered exhausted."""


class Step(NamedTuple):
    """One equation of whole numbers in a worked answer, such as 7 + 5 = 12.

    Divisions have no remainder.
    """

    left: int
    operation: str
    right: int

    @property
    def result(self) -> int:
        """Right side of the equation, computed from its left side."""
        return _OPERATIONS[self.operation](self.left, self.right)

    def __str__(self) -> str:
        return f"{self.left} {self.operation} {self.right} = {self.result}"

    def check(self) -> str:
        """Return the inverse equation as text; its result is the left number of this equation."""
        return f"{self.result} {_INVERSE[self.operation]} {self.right} = {self.left}"


class Problem(NamedTuple):
    """A generated question with its worked answer, in the style of one mathematics data set.

    Attributes:
        family: Data set that the problem imitates, a key of `MATH_SETS`.
        item: Fields of that data set.
        steps: Equations of the solution; the result of the last one is the answer.
    """

    family: str
    item: Item
    steps: tuple[Step, ...]

    @property
    def question(self) -> str:
        """Question as it is written in training text and prompts."""
        return MATH_SETS[self.family].question(self.item)

    @property
    def answer(self) -> str:
        """Answer in the form in which the data set publishes answers."""
        return MATH_SETS[self.family].answer(self.item)


def _sum_or_difference(draw: random.Random) -> Step:
    if draw.random() < 0.5:
        return Step(draw.randint(2, 20), "+", draw.randint(2, 20))
    high = draw.randint(5, 30)
    return Step(high, "-", draw.randint(2, high - 2))


def _product(draw: random.Random) -> Step:
    return Step(draw.randint(2, 9), "*", draw.randint(2, 9))


def _more_or_fewer(step: Step, things: str) -> str:
    gain = step.operation == "+"
    return f"gets {step.right} more" if gain else f"gives away {step.right} {things}"


def _gsm8k(draw: random.Random) -> tuple[Item, tuple[Step, ...]]:
    name, things = draw.choice(_NAMES), draw.choice(_THINGS)
    first = _product(draw)
    adds = draw.random() < 0.5
    limit = 20 if adds else first.result - 1
    second = Step(first.result, "+" if adds else "-", draw.randint(2, limit))
    question = (
        f"{name} has {first.left} boxes with {first.right} {things} each and "
        f"{_more_or_fewer(second, things)}. How many {things} does {name} have now?"
    )
    worked = f"{first}\n{second}\n#### {second.result}"
    return {"question": question, "answer": worked}, (first, second)


def _math(draw: random.Random) -> tuple[Item, tuple[Step, ...]]:
    product = _product(draw)
    if draw.random() < 0.5:
        total = Step(draw.randint(2, 30), "+", product.result)
        expression = f"{total.left} + {product.left} * {product.right}"
    else:
        total = Step(product.result, "-", draw.randint(2, product.result - 1))
        expression = f"{product.left} * {product.right} - {total.right}"
    problem = f"Compute ${expression}$."
    solution = rf"${product}$ and ${total}$, so it is $\boxed{{{total.result}}}$."
    item = {"problem": problem, "level": "Level 1", "type": "Prealgebra", "solution": solution}
    return item, (product, total)


def _svamp(draw: random.Random) -> tuple[Item, tuple[Step, ...]]:
    things, distractors = draw.sample(_THINGS, 2)
    name, step = draw.choice(_NAMES), _sum_or_difference(draw)
    body = (
        f"{name} has {step.left} {things} and {draw.randint(2, 20)} {distractors} and "
        f"{_more_or_fewer(step, things).replace('more', f'more {things}')}"
    )
    question = f"How many {things} are there now?"
    return {"Body": body, "Question": question, "Answer": float(step.result)}, (step,)


def _asdiv(draw: random.Random) -> tuple[Item, tuple[Step, ...]]:
    name, things, product = draw.choice(_NAMES), draw.choice(_THINGS), _product(draw)
    if draw.random() < 0.5:
        step = product
        body = f"{name} has {step.left} bags. Each bag holds {step.right} {things}."
        question = f"How many {things} are in the bags?"
    else:
        step = Step(product.result, "/", product.right)
        body = f"{name} puts {step.left} {things} into {step.right} equal bags."
        question = f"How many {things} are in each bag?"
    item = {"body": body, "question": question, "answer": f"{step.result} ({things})"}
    return item, (step,)


def _mawps(draw: random.Random) -> tuple[Item, tuple[Step, ...]]:
    name, things, step = draw.choice(_NAMES), draw.choice(_THINGS), _sum_or_difference(draw)
    change = f"{name} {_more_or_fewer(step, things)}."
    text = f"{name} had {step.left} {things}. {change} How many {things} are left?"
    return {"input": text, "target": float(step.result)}, (step,)


def _carp_en(draw: random.Random) -> tuple[Item, tuple[Step, ...]]:
    answer, factor = draw.randint(2, 9), draw.randint(2, 9)
    added = draw.randint(2, 30)
    moved = Step(answer * factor + added, "-", added)
    divided = Step(moved.result, "/", factor)
    content = f"Solve ${factor} x + {added} = {moved.left}$ for $x$."
    item = {"content": content, "answer": str(answer), "steps": f"{moved}; {divided}"}
    return item, (moved, divided)


def _tabmwp(draw: random.Random) -> tuple[Item, tuple[Step, ...]]:
    rows = {name: draw.randint(2, 20) for name in draw.sample(_NAMES, 3)}
    things = draw.choice(_THINGS)
    first, second = draw.sample(sorted(rows), 2)
    step = Step(rows[first], "+", rows[second])
    lines = "\n".join(f"{name} | {count}" for name, count in rows.items())
    item = {
        "question": f"How many {things} do {first} and {second} have together?",
        "choices": None,
        "answer": str(step.result),
        "table_title": None,
        "table": f"Name | Number of {things}\n{lines}",
    }
    return item, (step,)


def _college_math(draw: random.Random) -> tuple[Item, tuple[Step, ...]]:
    square, line, x = draw.randint(1, 4), draw.randint(2, 40), draw.randint(2, 9)
    steps = (Step(2, "*", square), Step(2 * square, "*", x), Step(2 * square * x, "+", line))
    question = f"What is the derivative of ${square} x^2 + {line} x$ at $x = {x}$?"
    return {"question": question, "answer": f"${steps[-1].result}$"}, steps


_FAMILIES: dict[str, Callable[[random.Random], tuple[Item, tuple[Step, ...]]]] = {
    "gsm8k": _gsm8k,
    "math": _math,
    "svamp": _svamp,
    "asdiv": _asdiv,
    "mawps": _mawps,
    "carp_en": _carp_en,
    "tabmwp": _tabmwp,
    "college_math": _college_math,
}
assert set(_FAMILIES) == set(MATH_SETS)


def training_problem(seed: int, index: int) -> Problem:
    """Return training problem number ``index``, the same on every machine."""
    return next(_problems(f"train {seed} {index}", None, validation=False))


def held_out_problems(family: str, count: int, seed: int) -> list[Problem]:
    """Return the first ``count`` distinct held-out problems of a family.

    Raises:
        DataError: The family has fewer held-out problems.
    """
    by_question: dict[str, Problem] = {}
    stream = _problems(f"test {seed} {family}", family, validation=True)
    for problem in islice(stream, _TRIES + 1):
        by_question.setdefault(problem.question, problem)
        if len(by_question) == count:
            return list(by_question.values())
    raise DataError(
        f"{family}: has {len(by_question)} generated items, fewer than {count}: lower the suite's "
        "limit"
    )


def document(problem: Problem, style: str, draw: random.Random) -> str:
    r"""Return a problem as training text that ends in ``\boxed{answer}``.

    Style "worked" has the equations; "reasoned" has a longer chain of thought, in which each result
    is named and, half of the time, checked by the inverse equation.
    """
    if style == "worked":
        chain = ". ".join(map(str, problem.steps)) + "."
    else:
        chain = "<think> " + " ".join(_thoughts(problem, draw)) + " </think>"
    last = rf"The answer is \boxed{{{problem.steps[-1].result}}}."
    return f"{PROMPT.format(question=problem.question)} {chain} {last}"


def document_at(seed: int, index: int, style: str) -> str:
    """Return the text of training document number ``index`` in a style of `document`."""
    return document(training_problem(seed, index), style, random.Random(f"{style} {seed} {index}"))


def _thoughts(problem: Problem, draw: random.Random) -> Iterator[str]:
    for number, step in enumerate(problem.steps, start=1):
        yield f"Step {number}: {step}."
        if draw.random() < 0.5:
            yield f"Check: {step.check()}."
    yield f"So it is {problem.steps[-1].result}."


def _problems(stream: str, family: str | None, *, validation: bool) -> Iterator[Problem]:
    """Yield held-out problems, or those of training, from a random stream named by a text."""
    draw = random.Random(stream)
    while True:
        chosen = family or draw.choice(list(_FAMILIES))
        problem = Problem(chosen, *_FAMILIES[chosen](draw))
        if in_validation(problem.question, VALIDATION_SHARE) == validation:
            yield problem
