"""A set of mathematics as an lm-eval task; answers are compared by `math_verify`.

`math_verify` bounds its time by signals, so answers are judged in the main thread, where lm-eval
does it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from lm_eval.api.instance import Instance
from math_verify import parse, verify

from difftransformer.config.math_sets import MATH_SETS, Item, boxed
from difftransformer.config.suites.mathematics import Mathematics
from difftransformer.evaluation.generation_task import GenerationTask

METRIC = "exact_match"


class Verdict(NamedTuple):
    """What became of an output: the answer read from it, None without one, and if it is right."""

    parsed: str | None
    correct: bool


def judge(output: str, answer: str) -> Verdict:
    r"""Compare an output with the published answer.

    The answer of an output is what its last ``\boxed{}`` holds, else the last formula or number
    that `math_verify` finds. Answers in words, which it cannot read, are right if they are the same
    text but for case and white space.
    """
    box = boxed(output)
    # Of several boxes math_verify would make one set.
    found = parse(output if box is None else rf"\boxed{{{box}}}")
    words = _words(output)
    gold = parse(answer if "$" in answer else f"${answer}$")
    right = bool(gold and found and verify(gold, found))
    same = words is not None and _folded(words) == _folded(answer)
    read = words if same or not found else str(found[-1])
    return Verdict(read, right or same)


def _words(output: str) -> str | None:
    """What an output presents as its answer: in a box, or behind the last `answer is`."""
    found = boxed(output)
    if found is None and "answer is" in output:
        found = output.rpartition("answer is")[2].partition("\n")[0]
    return None if found is None else found.strip(" :$.")


def _folded(text: str) -> str:
    return " ".join(text.strip(" $.").casefold().split())


class MathTask(GenerationTask):
    """The items of one set, each asked without solved examples; its score is 1 or 0.

    Attributes:
        verdicts: By item, once lm-eval has judged it.
    """

    def __init__(self, name: str, items: list[Item], suite: Mathematics) -> None:
        known = MATH_SETS[name]
        self.verdicts: dict[int, Verdict] = {}
        self._prompt = suite.prompt
        documents = [
            {"index": index, "question": known.question(item), "answer": known.answer(item)}
            for index, item in enumerate(items)
        ]
        super().__init__(
            f"mathematics_{name}",
            documents,
            until=suite.until,
            new_tokens=suite.max_new_tokens,
            metric=METRIC,
        )

    def doc_to_text(self, doc: Mapping[str, Any]) -> str:
        """Prompt of an item."""
        return self._prompt.replace("{question}", doc["question"])

    def doc_to_target(self, doc: Mapping[str, Any]) -> str:
        """Published answer."""
        answer: str = doc["answer"]
        return answer

    def construct_requests(self, doc: Mapping[str, Any], ctx: str, **kwargs: Any) -> list[Instance]:
        """One generation."""
        return [
            Instance(
                request_type=self.OUTPUT_TYPE,
                doc=doc,
                arguments=(ctx, self.generation),
                idx=0,
                metadata=kwargs["metadata"],
            )
        ]

    def score(self, doc: Mapping[str, Any], results: list[str]) -> float:
        """1 if the answer of the output is right, else 0."""
        verdict = judge(results[0], doc["answer"])
        self.verdicts[doc["index"]] = verdict
        return float(verdict.correct)
