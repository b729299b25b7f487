"""Multi-needle retrieval: accuracy by needles, context length and depth, through lm-eval.

Prompts depend on the suite and the dataset alone, so all runs answer the same questions. Every
sample is in samples.jsonl.

One task is one cell: N needles, R of them asked for, a context length and a depth. Any lm-eval
model can be given the tasks; ours shares the prefixes of prompts.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.metrics import mean
from lm_eval.api.model import LM
from lm_eval.evaluator import evaluate

from difftransformer.evaluation.generation import AnswerEnds, Generator, Request
from difftransformer.evaluation.generation_task import GenerationTask
from difftransformer.evaluation.retrieval.prompts import open_builder
from difftransformer.evaluation.retrieval.settings import Cell, NeedlePrompt
from difftransformer.evaluation.retrieval.text import PromptBuilder
from difftransformer.evaluation.subject import Measured, Metrics, Subject, means
from difftransformer.measurements.needles.settings import COUNTS, Suite, group_name
from difftransformer.provenance.atomic import write_text

Answers = dict[Cell, list[list[bool]]]
"""Whether each number asked for is answered, by sample of every cell."""


def measure(suite: Suite, subject: Subject) -> Measured:
    """Accuracies with the counts behind them.

    Returns:
        accuracy_, correct_ and asked_ of every setting n{N}_r{R}, of each of its depths (_d{D})
        and, with more than one length, of each length (_l{L}) and its depths (_l{L}_d{D}): the
        share of needles asked for that were answered. computed_positions of given_positions tells
        how many prompt positions were computed and how many the prompts have. Accuracies are known
        by haystack, too: samples of a number share one over cells.

    Raises:
        ConfigError: A length has no room for the needles and the question.
        DataError: Held-out text or the tokenizer is missing.
    """
    builder = open_builder(suite, subject.dataset, new_tokens=suite.max_new_tokens)
    tasks = {
        cell: NeedleTask(cell, (builder.prompt(cell, i) for i in range(suite.samples)), builder)
        for cell in suite.cells
    }
    model = SharingModel(
        Generator(subject.scorer, suite.chunk, batch_size=suite.batch_size), builder
    )
    named = {task.task_name: task for task in tasks.values()}
    found = evaluate(model, {"tasks": named, "groups": {}}, bootstrap_iters=0)
    samples = {cell: found["samples"][task.task_name] for cell, task in tasks.items()}
    lines = [line for cell, some in samples.items() for line in _lines(cell, some)]
    write_text(subject.details / "samples.jsonl", "".join(json.dumps(x) + "\n" for x in lines))
    answers = {
        cell: [answered(one["doc"], one["filtered_resps"]) for one in some]
        for cell, some in samples.items()
    }
    measured = _measured(suite, answers)
    generator = model.generator
    positions = {"computed_positions": generator.computed, "given_positions": generator.given}
    return measured._replace(metrics={**measured.metrics, **positions})


class NeedleTask(GenerationTask):
    """The samples of one cell; a sample's score is the share of asked needles that it answers."""

    def __init__(self, cell: Cell, prompts: Iterable[NeedlePrompt], builder: PromptBuilder) -> None:
        super().__init__(
            f"needles_{group_name(cell[:2], cell.length, cell.depth)}",
            [
                {"context": one.context, "questions": one.questions, "answers": one.answers}
                for one in prompts
            ],
            until=builder.until,
            new_tokens=builder.new_tokens,
            metric="accuracy",
            **cell._asdict(),
        )

    def doc_to_text(self, doc: Mapping[str, Any]) -> str:
        """Prompt up to the question."""
        return str(doc["context"])

    def doc_to_target(self, doc: Mapping[str, Any]) -> str:
        """All numbers asked for."""
        return " ".join(number for numbers in doc["answers"] for number in numbers)

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
        answers = self.generator.generate([self.request(one) for one in requests])
        return [self._ends(one).text(answer) for answer, one in zip(answers, requests, strict=True)]

    def request(self, instance: Instance) -> Request:
        """Tokens of a prompt and when its answer ends."""
        prompt, settings = instance.args
        ended = self._ends(instance).ended
        return Request(self._builder.ids(prompt), settings["max_gen_toks"], ended)

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


def _measured(suite: Suite, answers: Answers) -> Measured:
    """Accuracies over all cells that a name stands for."""
    metrics: Metrics = {}
    units = {}
    for name, cells in suite.groups.items():
        right = np.array([answers[cell] for cell in cells])  # [cells, samples, R]
        values = (float(right.mean()), int(right.sum()), right.size)
        metrics |= {f"{count}_{name}": one for count, one in zip(COUNTS, values, strict=True)}
        units[f"{COUNTS[0]}_{name}"] = means("haystacks", right.mean(axis=(0, 2)))
    return Measured(metrics, units)


def _lines(cell: Cell, samples: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One record for each generation."""
    for one in samples:
        answers, texts = one["doc"]["answers"], one["filtered_resps"]
        for (prompt, _), wanted, text in zip(one["arguments"], answers, texts, strict=True):
            yield {
                **cell._asdict(),
                "sample": one["doc_id"],
                "prompt_sha256": hashlib.sha256(prompt.encode()).hexdigest(),
                "answer": text,
                "target": wanted,
                "correct": [number in text for number in wanted],
            }
