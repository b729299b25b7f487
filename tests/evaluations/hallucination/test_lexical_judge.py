"""The lexical judge: exact for generated facts, as documented for English."""

import math
from pathlib import Path

import numpy as np
import pytest
from small_answers import of_facts, of_text
from small_evaluation import RECALL

from difftransformer.config.judges import LexicalJudge
from difftransformer.data.recall import recall_batch
from difftransformer.data.rows import recall_words
from difftransformer.evaluations.hallucination.answers import Answer
from difftransformer.evaluations.hallucination.judges.lexical import (
    content_words,
    false_pair,
    open_judge,
)


def judge(answer: Answer, **settings: float) -> tuple[bool | None, str]:
    (judgment,) = open_judge(LexicalJudge(**settings), Path()).judge([answer])
    assert (judgment.set, judgment.index) == (answer.set, answer.index)
    return judgment.faithful, judgment.cause


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("v31", (True, "")),
        ("v05", (False, "contradicted")),
        ("f12", (False, "unsupported")),
        ("k02", (False, "unsupported")),
        ("v31 k02 v05 k07 v31", (True, "")),
        ("v31 k02 v31", (False, "contradicted")),
        ("v31 k09 v05", (False, "unsupported")),
        ("v31 f60 f11", (True, "")),
        ("v31 f60 k02 v31", (False, "contradicted")),
        ("v31 k02", (True, "")),
        ("v31 k02 f11", (False, "unsupported")),
        ("", (None, "empty")),
    ],
)
def test_every_stated_pair_must_be_in_the_document(
    output: str, expected: tuple[bool | None, str]
) -> None:
    assert judge(of_facts(output, "k07")) == expected


def test_the_lexical_judge_is_exact_on_generated_rows() -> None:
    words = recall_words(RECALL)
    rows, _ = recall_batch(RECALL, needles=2, queries=1, samples=50, seed=1)
    wrong = np.random.default_rng(0)
    for row in rows.tolist():
        document, (key, value) = " ".join(words[t] for t in row[:-2]), row[-2:]
        assert false_pair(document, f"{words[key]} {words[value]}") == ("", "")
        other = 24 + (value - 24 + int(wrong.integers(1, 8))) % 8
        cause, pair = false_pair(document, f"{words[key]} {words[other]}")
        assert (cause, pair) == ("contradicted", f"{words[key]} {words[other]}")


@pytest.mark.parametrize(
    ("output", "faithful"),
    [
        ("The mill at Aldbury closed in 1931.", True),
        ("A mill closed in 1932.", False),
        ("A mill closed at Tring.", False),
        ("It is Aldbury's wheel.", True),
        ("The wheel turns.", True),
        ("Ann Reed said the mill closed. Bakers mourn.", True),
        ("Ann Reed said the mill closed. Bakers mourn loudly.", False),
    ],
)
def test_a_summary_with_unsupported_numbers_or_names_is_not_faithful(
    output: str, faithful: bool
) -> None:
    assert judge(of_text(output), content_share=0.6)[0] is faithful


@pytest.mark.parametrize("share", [0.55, 0.6, 0.7, 0.8, 0.9])
@pytest.mark.parametrize("words", [5, 10, 20, 30, 60])
def test_rounding_does_not_fail_the_exact_threshold(share: float, words: int) -> None:
    letters = [f"{chr(97 + number // 26)}{chr(97 + number % 26)}x" for number in range(words)]
    least = math.ceil(round(share * words, 6))
    for supported, faithful in ((least, True), (least - 1, False)):
        answer = of_text("the " + " ".join(letters)).model_copy(
            update={"document": " ".join(letters[:supported])}
        )
        assert judge(answer, content_share=share)[0] is faithful, supported


def test_an_answer_may_use_words_of_document_and_question_only() -> None:
    answer = of_text("mill", task="answer", question="When did the famous mill close?")
    assert judge(answer)[0] is True
    assert judge(answer.model_copy(update={"output": "the famous mill"}))[0] is True
    assert judge(answer.model_copy(update={"output": "the old mill"}))[0] is False


def test_words_are_sorted_into_numbers_names_and_content() -> None:
    words = content_words('In 1931, Ann said: "The U.S. paid 2.5 million to Ann Reed." He left it.')
    assert words.numbers == ["1931", "2.5"]
    assert words.names == ["ann", "u", "s", "ann", "reed"]
    assert words.content == ["said", "paid", "million", "left"]
