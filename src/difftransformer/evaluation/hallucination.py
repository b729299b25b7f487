"""Contextual hallucination: what a model writes about a given document, kept for the judges.

Documents and prompts depend on the suite and the dataset alone, so all runs and seeds are asked the
same. Every prompt with its answer stands in answers.jsonl; `judge_answers` reads it.
"""

from collections.abc import Iterable
from typing import Protocol

from difftransformer.config.suites.hallucination import Hallucination
from difftransformer.errors import ConfigError
from difftransformer.evaluation.answers import Answer, write_answers
from difftransformer.evaluation.prefix_sharing import Generator, Request
from difftransformer.evaluation.subject import Metrics, Subject


class Asked(Protocol):
    """One prompt, and what becomes of its answer."""

    @property
    def request(self) -> Request:
        """Tokens of the prompt, room for the answer, and when it is whole."""

    def answer(self, new: list[int]) -> Answer:
        """Record the answer with these tokens."""


def measure(suite: Hallucination, subject: Subject) -> Metrics:
    """Generate every answer; counts alone, for nothing is judged here.

    Args:
        suite: Sets, samples, room for answers.
        subject: The model and its dataset. ``details`` gets answers.jsonl, see `Answer`.

    Returns:
        For each set samples_{set}, cut_{set} (share of documents of which the model's context held
        the start alone) and empty_{set} (share of outputs without a word); a set without items has
        samples 0 and None for the shares. computed_positions of given_positions tells how many
        prompt positions were computed and how many the prompts have.

    Raises:
        ConfigError: The suite does not fit the model or its dataset.
        DataError: Items or the tokenizer are missing, or the hub cannot be reached.
    """
    scorer, dataset = subject.scorer, subject.dataset
    misfit = suite.misfit(scorer.max_positions, dataset.manifest.recall)
    if misfit is not None:
        raise ConfigError(f"hallucination on {dataset.folder}: {misfit}")
    asked = list(_asked(suite, subject))
    generator = Generator(scorer, suite.chunk)
    generated = generator.generate([one.request for one in asked])
    answers = [one.answer(new) for one, new in zip(asked, generated, strict=True)]
    write_answers(subject.details, answers)
    metrics: Metrics = {}
    for name in suite.set_tasks:
        metrics |= _counts(name, [one for one in answers if one.set == name])
    return metrics | {
        "computed_positions": generator.computed,
        "given_positions": generator.given,
    }


def _asked(suite: Hallucination, subject: Subject) -> Iterable[Asked]:
    # Each format imports only what it needs.
    if suite.format == "recall":
        from difftransformer.evaluation.hallucination_recall import asked_of_rows

        return asked_of_rows(suite, subject.dataset)
    from difftransformer.evaluation.hallucination_text import asked_of_documents

    return asked_of_documents(suite, subject.dataset, subject.scorer.max_positions)


def _counts(name: str, answers: list[Answer]) -> Metrics:
    number = len(answers)
    return {
        f"samples_{name}": number,
        f"cut_{name}": sum(one.cut for one in answers) / number if number else None,
        f"empty_{name}": sum(not one.output.split() for one in answers) / number
        if number
        else None,
    }
