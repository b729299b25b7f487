"""Contextual hallucination: what a model writes about a given document, kept for the judges.

Documents and prompts depend on the suite and the dataset alone, so all runs and seeds are asked the
same. Every prompt with its answer stands in answers.jsonl; `judge_answers` reads it.

A text that is too long for the model's context loses its end; the judges see what the model was
given. Prompts are ours: the paper prints none. In the words of the builtin recall corpus a document
is the haystack of a row, ``f12 k07 v31 f60 ...``; its facts are the pairs of a key directly
followed by its value. An answer is the value behind a key that is given. A summary begins like one,
since only a key tells the model that the haystack is over, and goes on with keys of the model's own
choice and a value for each. Both kinds of a row share their document.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import NamedTuple

from tokenizers import Tokenizer

from difftransformer.data.packed import PackedDataset
from difftransformer.data.recall import RecallVocabulary, recall_batch
from difftransformer.evaluation.generation import (
    AnswerEnds,
    Generator,
    Request,
    encode,
    open_tokenizer,
    opening,
)
from difftransformer.evaluation.subject import Metrics, Subject
from difftransformer.evaluations.hallucination.answers import ANSWERS, Answer, write_lines
from difftransformer.evaluations.hallucination.documents import load_items
from difftransformer.evaluations.hallucination.settings import (
    HALLUCINATION_SETS,
    SAMPLES_SEED,
    TASKS,
    Suite,
    Task,
    fact_set,
    set_metric,
)

_LEAD_IN: dict[Task, str] = {
    "summary": "\n\nSummary:",
    "answer": "\n\nQuestion: {question}\nAnswer:",
}
_UNTIL: dict[Task, list[str]] = {"summary": ["\n\n"], "answer": ["\n"]}


class Asked(NamedTuple):
    """One prompt: its tokens, its answer but for the output, and what new tokens say."""

    request: Request
    answer: Answer
    text: Callable[[list[int]], str]


def measure(suite: Suite, subject: Subject) -> Metrics:
    """Generate every answer; counts alone, for nothing is judged here.

    The details of ``subject`` get answers.jsonl, see `Answer`.

    Returns:
        For each set samples_{set}, cut_{set} (share of documents of which the model's context held
        the start alone) and empty_{set} (share of outputs without a word); a set without items has
        samples 0 and None for the shares. computed_positions of given_positions tells how many
        prompt positions were computed and how many the prompts have.

    Raises:
        DataError: Items or the tokenizer are missing, or the hub cannot be reached.
    """
    scorer, dataset = subject.scorer, subject.dataset
    if suite.format == "recall":
        asked = list(_about_rows(suite, dataset))
    else:
        asked = list(_about_documents(suite, dataset, scorer.model.max_positions))
    generator = Generator(scorer, suite.chunk)
    generated = generator.generate([one.request for one in asked])
    answers = [
        one.answer.model_copy(update={"output": one.text(new).strip()})
        for one, new in zip(asked, generated, strict=True)
    ]
    write_lines(subject.details / ANSWERS, answers)
    metrics: Metrics = {}
    for name in suite.set_tasks:
        metrics |= _counts(name, [one for one in answers if one.set == name])
    return metrics | {"computed_positions": generator.computed, "given_positions": generator.given}


def _about_documents(suite: Suite, dataset: PackedDataset, max_positions: int) -> Iterator[Asked]:
    """Ask about every drawn document of every set that there are items of."""
    tokenizer, end = open_tokenizer(dataset), dataset.manifest.tokenizer.eos_id
    begins = opening(tokenizer, end)
    for name, items in load_items(suite).items():
        task = HALLUCINATION_SETS[name].task
        new = suite.summary_tokens if task == "summary" else suite.answer_tokens
        ends = AnswerEnds(tokenizer, end, _UNTIL[task])
        for index, item in enumerate(items):
            tail = _LEAD_IN[task].format(question=item.question)
            document = _fitting(tokenizer, item.document, tail, max_positions - new - len(begins))
            ids = begins + encode(tokenizer, document + tail).ids
            answer = Answer(
                set=name, index=index, id=item.id, task=task, format="text", document=document,
                cut=document != item.document, question=item.question, reference=item.reference,
                prompt=document + tail, output="",
            )  # fmt: skip
            yield Asked(Request(ids, new, ends.ended), answer, ends.text)


def _fitting(tokenizer: Tokenizer, document: str, tail: str, room: int) -> str:
    """Return the longest start of a document that fits into `room` tokens with what follows it."""
    offsets = encode(tokenizer, document).offsets
    kept = min(len(offsets), room - len(encode(tokenizer, tail).ids))
    while kept > 0:
        text = document if kept == len(offsets) else document[: offsets[kept - 1][1]]
        excess = len(encode(tokenizer, text + tail).ids) - room
        if excess <= 0:
            return text
        kept -= excess
    return ""


def _about_rows(suite: Suite, dataset: PackedDataset) -> Iterator[Asked]:
    """Ask for a summary and for an answer about each row, by the number of its facts."""
    recall = dataset.manifest.recall
    assert recall is not None, "see Suite.incompatibility"
    tokenizer, keys = open_tokenizer(dataset), RecallVocabulary.of(recall).keys
    words: Callable[[list[int]], str] = tokenizer.decode
    rooms = {"summary": 2 * suite.statements - 1, "answer": 1}
    queries = len(TASKS)
    for needles in suite.needles:
        rows, _ = recall_batch(
            recall, needles=needles, queries=queries, samples=suite.samples,
            seed=SAMPLES_SEED, haystack_length=suite.haystack_length,
        )  # fmt: skip
        for (place, task), (index, row) in product(enumerate(TASKS), enumerate(rows.tolist())):
            document, pairs = row[: -2 * queries], row[-2 * queries :]
            key, value = pairs[2 * place : 2 * place + 2]
            at = [place for place, token in enumerate(document) if token in keys]
            facts = [token for place in at for token in document[place : place + 2]]
            answer = Answer(
                set=fact_set(task, needles), index=index, id=f"n{needles}-{index}", task=task,
                format="recall", document=words(document), cut=False, question=words([key]),
                reference=words(facts if task == "summary" else [value]),
                prompt=words([*document, key]), output="",
            )  # fmt: skip
            request = Request([*document, key], rooms[task], lambda new: False)
            yield Asked(request, answer, words)


def _counts(name: str, answers: list[Answer]) -> Metrics:
    def share(of: Iterable[bool]) -> float | None:
        return sum(of) / len(answers) if answers else None

    return {
        set_metric("samples", name): len(answers),
        set_metric("cut", name): share(one.cut for one in answers),
        set_metric("empty", name): share(not one.output.split() for one in answers),
    }
