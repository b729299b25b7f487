"""Needle prompts as lm-eval tasks, and our models as an lm-eval model that answers them.

One task is one cell: N needles, R of them asked for, a context length and a depth. Any lm-eval
model can be given the tasks; ours shares the prefixes of prompts.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.metrics import mean
from lm_eval.api.model import LM

from difftransformer.evaluation.answer_ends import AnswerEnds
from difftransformer.evaluation.generation_task import GenerationTask
from difftransformer.evaluation.needle_prompts import Cell, NeedlePrompt, PromptBuilder
from difftransformer.evaluation.prefix_sharing import Generator, Request

METRIC = "accuracy"


def cell_name(cell: Cell) -> str:
    """Name of a cell in tasks and metrics, such as n4_r2_l256_d25."""
    length = "" if cell.length is None else f"_l{cell.length}"
    return f"n{cell.needles}_r{cell.asked}{length}_d{cell.depth}"


class NeedleTask(GenerationTask):
    """The samples of one cell; a sample's score is the share of asked needles that it answers."""

    def __init__(self, cell: Cell, prompts: Iterable[NeedlePrompt], builder: PromptBuilder) -> None:
        super().__init__(
            f"needles_{cell_name(cell)}",
            [_document(prompt) for prompt in prompts],
            until=builder.until,
            new_tokens=builder.new_tokens,
            metric=METRIC,
            **cell._asdict(),
        )

    def doc_to_text(self, doc: Mapping[str, Any]) -> str:
        """Prompt up to the question."""
        context: str = doc["context"]
        return context

    def doc_to_target(self, doc: Mapping[str, Any]) -> str:
        """All numbers asked for."""
        return " ".join(number for numbers in doc["answers"] for number in numbers)

    def construct_requests(self, doc: Mapping[str, Any], ctx: str, **kwargs: Any) -> list[Instance]:
        """One generation for each question."""
        return [
            Instance(
                request_type=self.OUTPUT_TYPE,
                doc=doc,
                arguments=(ctx + question, self.generation),
                idx=index,
                metadata=kwargs["metadata"],
            )
            for index, question in enumerate(doc["questions"])
        ]

    def score(self, doc: Mapping[str, Any], results: list[str]) -> float:
        """Share of the numbers asked for that occur in the answer to their question."""
        return float(mean(answered(doc, results)))


class SharingModel(LM):  # type: ignore[misc]
    """Our models for lm-eval's `generate_until`: greedy, prefixes of prompts shared."""

    def __init__(self, generator: Generator, builder: PromptBuilder) -> None:
        super().__init__()
        self.generator, self._builder = generator, builder

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """See lm-eval's LM."""
        asked = [self.request(one) for one in requests]
        answers = self.generator.generate(asked)
        return [self._ends(one).text(answer) for answer, one in zip(answers, requests, strict=True)]

    def request(self, instance: Instance) -> Request:
        """Tokens of a prompt and when its answer ends."""
        prompt, settings = instance.args
        return Request(
            self._builder.ids(prompt), settings["max_gen_toks"], self._ends(instance).ended
        )

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Needle tasks ask for none."""
        raise NotImplementedError

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Needle tasks ask for none."""
        raise NotImplementedError

    def _ends(self, instance: Instance) -> AnswerEnds:
        return AnswerEnds(self._builder.tokenizer, self._builder.end, instance.args[1]["until"])


def answered(doc: Mapping[str, Any], results: list[str]) -> list[bool]:
    """Whether each number asked for occurs in the answer to its question."""
    return [
        number in text
        for numbers, text in zip(doc["answers"], results, strict=True)
        for number in numbers
    ]


def _document(prompt: NeedlePrompt) -> dict[str, Any]:
    return {
        "context": prompt.context,
        "questions": list(prompt.questions),
        "answers": [list(numbers) for numbers in prompt.answers],
    }
