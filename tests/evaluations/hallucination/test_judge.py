"""What is counted of judgments: shares are of what was judged, averages of sets."""

import pytest
from small_answers import of_facts, of_text
from small_evaluation import metrics_of, sizes

from difftransformer.evaluations.hallucination.answers import Cause, Judgment
from difftransformer.evaluations.hallucination.judge import counts
from difftransformer.evaluations.hallucination.settings import Task

TASKS_OF: dict[str, Task] = {
    "summary_n2": "summary", "answer_n2": "answer", "xsum": "summary", "qasper": "answer",
}  # fmt: skip


def test_unjudged_answers_are_counted_apart() -> None:
    answers = [
        *(of_facts("v31 k02 v05", index=index) for index in range(5)),
        *(of_facts("v31", index=index) for index in range(2)),
        of_text("It."),
    ]
    verdicts: list[tuple[bool | None, Cause]] = [
        (True, ""), (False, "contradicted"), (False, "invented"), (None, "empty"),
        (None, "malformed"),
        (True, ""), (True, ""), (None, "empty"),
    ]  # fmt: skip
    judged = [
        Judgment(set=one.set, index=one.index, free=free, cause=cause, usage={"prompt_tokens": 3})
        for one, (free, cause) in zip(answers, verdicts, strict=True)
    ]
    measured = counts(TASKS_OF, answers, judged)
    found = metrics_of(measured)
    assert (found["free_summary_n2"], found["free_answer_n2"], found["free_xsum"]) == (
        1 / 3, 1.0, None,
    )  # fmt: skip
    assert [found[f"{kind}_summary_n2"] for kind in ("judged", "unjudged")] == [3, 2]
    assert [found[f"{kind}_summary_n2"] for kind in ("contradicted", "invented")] == [1, 1]
    assert (found["average_summary"], found["average_answer"]) == (1 / 3, 1.0)
    assert found["average"] == 2 / 3  # of two sets; nothing was judged of the third
    assert (found["unjudged"], found["judge_prompt_tokens"]) == (3, 24)
    assert found["free_qasper"] is None  # there is nothing of it
    assert measured.units["free_summary_n2"].shares[0].weights == [1, 1, 1, 0, 0]
    sets = [("summary_n2", 5), ("answer_n2", 2), ("xsum", 1)]
    assert sizes(measured.units["average"]) == sets


def test_two_answers_about_a_document_are_one_unit() -> None:
    answers = [of_facts(said, index=index) for said in ("v31 k02 v05", "v31") for index in range(3)]
    judged = [
        Judgment(set=one.set, index=one.index, free=free)
        for one, free in zip(answers, (True, True, False, True, False, None), strict=True)
    ]
    found = counts(TASKS_OF, answers, judged)
    assert metrics_of(found)["average"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert sizes(found.units["average"])[:2] == [("summary_n2", 3)] * 2
