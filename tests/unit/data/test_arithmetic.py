"""Generated mathematics: right answers, one split on every machine, the fields of the real sets."""

import hashlib
import re
from itertools import islice

import pytest

from difftransformer.config.data import BuiltinSource, DatasetConfig
from difftransformer.data import arithmetic
from difftransformer.data.arithmetic import (
    VALIDATION_SHARE,
    document_at,
    held_out_problems,
    training_problem,
)
from difftransformer.data.documents import Cursor, in_validation
from difftransformer.data.math_sets import MATH_SETS, boxed
from difftransformer.data.sources import open_sources
from difftransformer.errors import DataError

EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


def source(**changes: object) -> BuiltinSource:
    return BuiltinSource.model_validate({"kind": "builtin", "name": "arithmetic"} | changes)


def dataset(**changes: object) -> DatasetConfig:
    settings = {"sources": {"a": source()}, "tokenizer": {"kind": "bpe"}, "tokens": 1000}
    return DatasetConfig.model_validate(settings | changes)


@pytest.mark.parametrize("style", ["worked", "reasoned"])
def test_every_equation_holds_and_the_box_is_the_answer(style: str) -> None:
    for index in range(300):
        text, problem = document_at(5, index, style), training_problem(5, index)
        assert boxed(text) == problem.answer.strip("$")
        worked = text.partition("\nAnswer:")[2]
        equations = EQUATION.findall(worked)
        assert len(equations) >= len(problem.steps) >= 1
        for left, operation, right, result in equations:
            value = {
                "+": int(left) + int(right),
                "-": int(left) - int(right),
                "*": int(left) * int(right),
                "/": int(left) / int(right),
            }[operation]
            assert value == int(result) >= 0, worked
        assert ("<think>" in text) == (style == "reasoned")


def test_evaluation_problems_are_never_in_training() -> None:
    trained = {training_problem(0, index).question for index in range(4000)}
    for family in MATH_SETS:
        questions = [problem.question for problem in held_out_problems(family, 100, 7)]
        assert len(set(questions)) == 100
        assert all(in_validation(question, VALIDATION_SHARE) for question in questions)
        assert not trained & set(questions)
    assert not any(in_validation(question, VALIDATION_SHARE) for question in trained)
    assert {training_problem(0, index).family for index in range(200)} == set(MATH_SETS)


def test_the_text_is_the_same_on_every_machine() -> None:
    text = "\n".join(document_at(0, index, "reasoned") for index in range(50))
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest[:16] == "72b3820393f48a27"


def test_an_item_has_the_fields_of_its_set() -> None:
    for family, math_set in MATH_SETS.items():
        (problem,) = held_out_problems(family, 1, 1)
        assert all(problem.item[field] not in (None, "") for field in math_set.fields)
        assert math_set.question(problem.item) == problem.question
        assert math_set.answer(problem.item).strip("$") == str(problem.steps[-1].result)


def test_reading_resumes_from_any_cursor() -> None:
    opened = open_sources(dataset())["a"]
    first = list(islice(opened.read("train", Cursor()), 6))
    assert list(islice(opened.read("train", first[2].cursor), 3)) == first[3:]
    other = open_sources(dataset(sources={"a": source(generator_seed=1)}))["a"]
    assert next(other.read("train", Cursor())).text != first[0].text
    assert other.identity() != opened.identity()


def test_an_endless_source_needs_a_token_budget() -> None:
    with pytest.raises(ValueError, match="source a without `tokens` would never end"):
        dataset(tokens=None)


def test_a_family_can_run_out_of_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "_TRIES", 2000)
    with pytest.raises(DataError, match=r"carp_en.*fewer than 900.*limit"):
        held_out_problems("carp_en", 900, 0)
