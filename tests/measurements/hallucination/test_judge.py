"""What is counted of judgements: shares are of what was judged, averages of sets."""

from small_answers import of_facts, of_text

from difftransformer.measurements.hallucination.judge import counts
from difftransformer.measurements.hallucination.judges import Cause, Judgement


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
        Judgement(set=one.set, index=one.index, free=free, cause=cause, usage={"prompt_tokens": 3})
        for one, (free, cause) in zip(answers, verdicts, strict=True)
    ]
    found = counts(answers, judged)
    assert (found["free_summary_n2"], found["free_answer_n2"], found["free_xsum"]) == (
        1 / 3, 1.0, None,
    )  # fmt: skip
    assert [found[f"{kind}_summary_n2"] for kind in ("judged", "unjudged")] == [3, 2]
    assert [found[f"{kind}_summary_n2"] for kind in ("contradicted", "invented")] == [1, 1]
    assert (found["average_summary"], found["average_answer"]) == (1 / 3, 1.0)
    assert found["average"] == 2 / 3  # of two sets; nothing was judged of the third
    assert (found["unjudged"], found["judge_prompt_tokens"]) == (3, 24)
