"""Documents in English: a summary of one, or the answer to a question about it.

A document that is too long for the model's context loses its end; the judges see what the model was
given. Prompts are ours: the paper prints none.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tokenizers import Tokenizer

from difftransformer.config.hallucination_sets import HALLUCINATION_SETS, Task
from difftransformer.config.suites.hallucination import Hallucination
from difftransformer.data.packed import PackedDataset
from difftransformer.evaluation.answer_ends import AnswerEnds
from difftransformer.evaluation.answers import Answer
from difftransformer.evaluation.hallucination_items import Item, load_items
from difftransformer.evaluation.needle_prompts import encode, open_tokenizer
from difftransformer.evaluation.prefix_sharing import Request

_LEAD_IN: dict[Task, str] = {
    "summary": "\n\nSummary:",
    "answer": "\n\nQuestion: {question}\nAnswer:",
}
_UNTIL: dict[Task, list[str]] = {"summary": ["\n\n"], "answer": ["\n"]}


@dataclass(frozen=True)
class _Document:
    """One document as it is asked about."""

    set: str
    index: int
    task: Task
    item: Item
    document: str
    prompt: str
    request: Request
    ends: AnswerEnds

    def answer(self, new: list[int]) -> Answer:
        return Answer(
            set=self.set,
            index=self.index,
            id=self.item.id,
            task=self.task,
            format="text",
            document=self.document,
            cut=self.document != self.item.document,
            question=self.item.question,
            reference=self.item.reference,
            prompt=self.prompt,
            output=self.ends.text(new).strip(),
        )


def asked_of_documents(
    suite: Hallucination, dataset: PackedDataset, max_positions: int
) -> Iterator[_Document]:
    """Ask about every drawn document of every set that there are items of.

    Raises:
        DataError: Items or the tokenizer are missing, or the hub cannot be reached.
    """
    tokenizer, end = open_tokenizer(dataset), dataset.manifest.tokenizer.eos_id
    for name, items in load_items(suite).items():
        task = HALLUCINATION_SETS[name].task
        new = suite.summary_tokens if task == "summary" else suite.answer_tokens
        ends = AnswerEnds(tokenizer, end, _UNTIL[task])
        # In training every document starts behind the end of another one.
        opening = [] if end is None else [end]
        for index, item in enumerate(items):
            tail = _LEAD_IN[task].format(question=item.question)
            document = _fitting(tokenizer, item.document, tail, max_positions - new - len(opening))
            ids = opening + encode(tokenizer, document + tail).ids
            yield _Document(
                name,
                index,
                task,
                item,
                document,
                document + tail,
                Request(ids, new, ends.ended),
                ends,
            )


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
