"""Generate summaries of documents and answers to questions about them, for the judges.

Documents and prompts depend only on the suite and the dataset, so they are the same for all runs
and seeds. answers.jsonl holds every prompt with its answer; the rule `judge_answers` reads it.

A text too long for the model's context loses its end; judges see the truncated document. Prompts
are ours: the paper prints none. In format recall a document is the haystack of a row of the builtin
corpus, ``f12 k07 v31 f60 ...``; its facts are the pairs of a key directly followed by its value. An
answer is the value of the key at the end of the prompt. The prompt of a summary ends in a key, too,
since only a key tells the model that the haystack is over; the model then continues with pairs that
it chooses. Both tasks share the document of a row.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import NamedTuple

from tokenizers import Tokenizer

from difftransformer.data.packed import PackedDataset
from difftransformer.data.recall import RecallVocabulary, recall_batch
from difftransformer.evaluation.context import EvalContext, Metrics
from difftransformer.evaluation.generation import (
    Generator,
    Request,
    StopCriteria,
    encode,
    open_tokenizer,
    prefix_token_ids,
)
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


class PromptedItem(NamedTuple):
    """A prompt's request, its answer record with an empty output, and the decoder of new tokens."""

    request: Request
    answer: Answer
    decode: Callable[[list[int]], str]


def measure(suite: Suite, context: EvalContext) -> Metrics:
    """Generate and store every answer, and return the counts of answers per document set.

    Returns:
        For each set samples_{set} (number of answers), truncated_{set} (share of documents that
        lost their end to fit the context) and empty_{set} (share of outputs without a word); a set
        without items has samples 0 and None for the shares. prompt_positions is the number of
        prompt positions, computed_positions the number computed, as prompts share prefixes.

    Raises:
        DataError: Items or the tokenizer are missing, or the hub cannot be reached.
    """
    scorer, dataset = context.scorer, context.dataset
    if suite.format == "recall":
        items = list(_recall_prompts(suite, dataset))
    else:
        items = list(_document_prompts(suite, dataset, scorer.model.max_positions))
    generator = Generator(scorer, suite.chunk)
    generated = generator.generate([item.request for item in items])
    answers = [
        item.answer.model_copy(update={"output": item.decode(new).strip()})
        for item, new in zip(items, generated, strict=True)
    ]
    write_lines(context.details / ANSWERS, answers)
    metrics: Metrics = {}
    for name in suite.set_tasks:
        metrics |= _counts(name, [answer for answer in answers if answer.set == name])
    return metrics | {
        "computed_positions": generator.computed_positions,
        "prompt_positions": generator.prompt_positions,
    }


def _document_prompts(
    suite: Suite, dataset: PackedDataset, max_positions: int
) -> Iterator[PromptedItem]:
    """Yield a prompt for every sampled document of every set with items."""
    tokenizer, end = open_tokenizer(dataset), dataset.manifest.tokenizer.eos_id
    start = prefix_token_ids(tokenizer, end)
    for name, items in load_items(suite).items():
        task = HALLUCINATION_SETS[name].task
        new = suite.summary_tokens if task == "summary" else suite.answer_tokens
        ends = StopCriteria(tokenizer, end, _UNTIL[task])
        for index, item in enumerate(items):
            tail = _LEAD_IN[task].format(question=item.question)
            document = _truncate(tokenizer, item.document, tail, max_positions - new - len(start))
            ids = start + encode(tokenizer, document + tail).ids
            answer = Answer(
                set=name, index=index, id=item.id, task=task, format="text", document=document,
                truncated=document != item.document, question=item.question,
                reference=item.reference, prompt=document + tail, output="",
            )  # fmt: skip
            yield PromptedItem(Request(ids, new, ends.should_stop), answer, ends.text)


def _truncate(tokenizer: Tokenizer, document: str, suffix: str, max_length: int) -> str:
    """Return the longest prefix of a document that fits ``max_length`` tokens with ``suffix``."""
    offsets = encode(tokenizer, document).offsets
    length = min(len(offsets), max_length - len(encode(tokenizer, suffix).ids))
    while length > 0:
        text = document if length == len(offsets) else document[: offsets[length - 1][1]]
        excess = len(encode(tokenizer, text + suffix).ids) - max_length
        if excess <= 0:
            return text
        length -= excess
    return ""


def _recall_prompts(suite: Suite, dataset: PackedDataset) -> Iterator[PromptedItem]:
    """Yield prompts for a summary and an answer about each recall row, by its number of facts."""
    recall = dataset.manifest.recall
    assert recall is not None, "see Suite.incompatibility"
    tokenizer, keys = open_tokenizer(dataset), RecallVocabulary.of(recall).keys
    decode: Callable[[list[int]], str] = tokenizer.decode
    max_new = {"summary": 2 * suite.summary_pairs - 1, "answer": 1}
    queries = len(TASKS)
    for needles in suite.needles:
        rows, _ = recall_batch(
            recall, needles=needles, queries=queries, samples=suite.samples,
            seed=SAMPLES_SEED, haystack_length=suite.haystack_length,
        )  # fmt: skip
        for (query, task), (index, row) in product(enumerate(TASKS), enumerate(rows.tolist())):
            document, pairs = row[: -2 * queries], row[-2 * queries :]
            key, value = pairs[2 * query : 2 * query + 2]
            key_positions = [index for index, token in enumerate(document) if token in keys]
            facts = [token for at in key_positions for token in document[at : at + 2]]
            answer = Answer(
                set=fact_set(task, needles), index=index, id=f"n{needles}-{index}", task=task,
                format="recall", document=decode(document), truncated=False, question=decode([key]),
                reference=decode(facts if task == "summary" else [value]),
                prompt=decode([*document, key]), output="",
            )  # fmt: skip
            request = Request([*document, key], max_new[task], lambda new: False)
            yield PromptedItem(request, answer, decode)


def _counts(name: str, answers: list[Answer]) -> Metrics:
    def share(flags: Iterable[bool]) -> float | None:
        return sum(flags) / len(answers) if answers else None

    return {
        set_metric("samples", name): len(answers),
        set_metric("truncated", name): share(answer.truncated for answer in answers),
        set_metric("empty", name): share(not answer.output.split() for answer in answers),
    }
