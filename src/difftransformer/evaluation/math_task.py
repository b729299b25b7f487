"""A set of mathematics as an lm-eval task; answers are compared by `math_verify`.

`math_verify` bounds its time by signals, so answers are judged in the main thread, where lm-eval
does it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from lm_eval.api.instance import Instance
from lm_eval.api.metrics import mean
from lm_eval.api.task import Task
from lm_eval.config.task import TaskConfig
from lm_eval.filters import build_filter_ensemble
from math_verify import parse, verify

from difftransformer.config.math_sets import MATH_SETS, Item, boxed
from difftransformer.config.suites.mathematics import Mathematics

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


class MathTask(Task):  # type: ignore[misc]
    """The items of one set, each asked without solved examples; its score is 1 or 0.

    Attributes:
        verdicts: By item, once lm-eval has judged it.
    """

    VERSION = 1
    OUTPUT_TYPE = "generate_until"

    def __init__(self, name: str, items: list[Item], suite: Mathematics) -> None:
        known = MATH_SETS[name]
        self.verdicts: dict[int, Verdict] = {}
        self._docs = [
            {"index": index, "question": known.question(item), "answer": known.answer(item)}
            for index, item in enumerate(items)
        ]
        self._prompt = suite.prompt
        self._generation = {
            "until": suite.until,
            "max_gen_toks": suite.max_new_tokens,
            "do_sample": False,
        }
        # Not Task.__init__, which downloads, and makes a config of defaults with a warning.
        self._filters = [build_filter_ensemble("none", [["take_first", None]])]
        self._config = TaskConfig(
            task=f"mathematics_{name}",
            output_type=self.OUTPUT_TYPE,
            generation_kwargs=self._generation,
            num_fewshot=0,
            metadata={"version": self.VERSION},
        )

    def has_training_docs(self) -> bool:
        """No."""
        return False

    def has_validation_docs(self) -> bool:
        """No."""
        return False

    def has_test_docs(self) -> bool:
        """Yes: the items."""
        return True

    def test_docs(self) -> list[dict[str, Any]]:
        """Questions and answers as plain data."""
        return self._docs

    def build_all_requests(
        self, *, limit: int | None = None, rank: int = 0, world_size: int = 1, **_: Any
    ) -> None:
        """Make the requests; there are no examples to put before a prompt."""
        documents = self.doc_iterator(rank=rank, limit=limit, world_size=world_size)
        self._instances = [
            self.construct_requests(doc, self.doc_to_text(doc), metadata=(self.task_name, index, 1))
            for index, doc in documents
        ]

    def doc_to_text(self, doc: Mapping[str, Any]) -> str:
        """Prompt of an item."""
        return self._prompt.replace("{question}", doc["question"])

    def doc_to_target(self, doc: Mapping[str, Any]) -> str:
        """Published answer."""
        answer: str = doc["answer"]
        return answer

    def construct_requests(self, doc: Mapping[str, Any], ctx: str, **kwargs: Any) -> Instance:
        """One generation."""
        return Instance(
            request_type=self.OUTPUT_TYPE,
            doc=doc,
            arguments=(ctx, self._generation),
            idx=0,
            metadata=kwargs["metadata"],
        )

    def process_results(self, doc: Mapping[str, Any], results: list[str]) -> dict[str, float]:
        """1 if the answer of the output is right, else 0."""
        verdict = judge(results[0], doc["answer"])
        self.verdicts[doc["index"]] = verdict
        return {METRIC: float(verdict.correct)}

    def aggregation(self) -> dict[str, Any]:
        """Mean over the items."""
        return {METRIC: mean}

    def higher_is_better(self) -> dict[str, bool]:
        """Yes."""
        return {METRIC: True}
