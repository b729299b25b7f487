"""Aggregated judgments: shares over judged answers, averages over sets."""

import pytest
from small_answers import of_facts, of_text
from small_evaluation import metrics_of, sizes

from difftransformer.evaluations.hallucination.answers import Cause, Judgment
from difftransformer.evaluations.hallucination.judge import aggregate
from difftransformer.evaluations.hallucination.settings import Task

TASKS_OF: dict[str, Task] = {
    "summary_n2": "summary", "answer_n2": "answer", "xsum": "summary", "qasper": "answer",
}  # fmt: skip


def test_unjudged_answers_are_excluded_from_shares() -> None:
    answers = [
        *(of_facts("v31 k02 v05", index=index) for index in range(5)),
        *(of_facts("v31", index=index) for index in range(2)),
        of_text("It."),
    ]
    verdicts: list[tuple[bool | None, Cause]] = [
        (True, ""), (False, "contradicted"), (False, "unsupported"), (None, "empty"),
        (None, "malformed"),
        (True, ""), (True, ""), (None, "empty"),
    ]  # fmt: skip
    judged = [
        Judgment(
            set=answer.set,
            index=answer.index,
            faithful=faithful,
            cause=cause,
            usage={"prompt_tokens": 3},
        )
        for answer, (faithful, cause) in zip(answers, verdicts, strict=True)
    ]
    measured = aggregate(TASKS_OF, answers, judged)
    metrics = metrics_of(measured)
    names = ("summary_n2", "answer_n2", "xsum")
    assert [metrics[f"faithful_{name}"] for name in names] == [1 / 3, 1.0, None]
    assert [metrics[f"{kind}_summary_n2"] for kind in ("judged", "unjudged")] == [3, 2]
    assert [metrics[f"{kind}_summary_n2"] for kind in ("contradicted", "unsupported")] == [1, 1]
    assert (metrics["average_summary"], metrics["average_answer"]) == (1 / 3, 1.0)
    assert metrics["average"] == 2 / 3  # of two sets; nothing was judged of the third
    assert (metrics["unjudged"], metrics["judge_prompt_tokens"]) == (3, 24)
    assert metrics["faithful_qasper"] is None  # there is nothing of it
    assert measured.per_item["faithful_summary_n2"].terms[0].weights == [1, 1, 1, 0, 0]
    sets = [("summary_n2", 5), ("answer_n2", 2), ("xsum", 1)]
    assert sizes(measured.per_item["average"]) == sets


def test_answers_about_the_same_document_are_one_sampling_unit() -> None:
    answers = [
        of_facts(output, index=index) for output in ("v31 k02 v05", "v31") for index in range(3)
    ]
    judged = [
        Judgment(set=answer.set, index=answer.index, faithful=faithful)
        for answer, faithful in zip(answers, (True, True, False, True, False, None), strict=True)
    ]
    result = aggregate(TASKS_OF, answers, judged)
    assert metrics_of(result)["average"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert sizes(result.per_item["average"])[:2] == [("summary_n2", 3)] * 2
