"""Facts in the words of the builtin recall corpus: answers about them and free summaries of them.

A document is the haystack of a recall row, ``f12 k07 v31 f60 ...``; its facts are the pairs of a
key directly followed by its value. An answer is the value behind a key that is given. A summary
begins like one, since only a key tells the model that the haystack is over, and goes on with keys
of the model's own choice and a value for each. Both kinds of a row share their document.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tokenizers import Tokenizer

from difftransformer.config.hallucination_sets import TASKS, Task, fact_set
from difftransformer.config.suites.hallucination import Hallucination
from difftransformer.data.packed import PackedDataset
from difftransformer.data.recall import RecallVocabulary, recall_batch
from difftransformer.evaluation.answers import Answer
from difftransformer.evaluation.needle_prompts import open_tokenizer
from difftransformer.evaluation.prefix_sharing import Request


@dataclass(frozen=True)
class _Facts:
    """One row, asked in one of two ways."""

    needles: int
    index: int
    task: Task
    document: list[int]
    facts: list[int]
    key: int
    value: int
    room: int
    tokenizer: Tokenizer

    @property
    def request(self) -> Request:
        return Request([*self.document, self.key], self.room, lambda new: False)

    def answer(self, new: list[int]) -> Answer:
        return Answer(
            set=fact_set(self.task, self.needles),
            index=self.index,
            id=f"n{self.needles}-{self.index}",
            task=self.task,
            format="recall",
            document=self._words(self.document),
            cut=False,
            question=self._words([self.key]),
            reference=self._words(self.facts if self.task == "summary" else [self.value]),
            prompt=self._words(self.request.prompt),
            output=self._words(new),
        )

    def _words(self, tokens: list[int]) -> str:
        text: str = self.tokenizer.decode(tokens)
        return text


def asked_of_rows(suite: Hallucination, dataset: PackedDataset) -> Iterator[_Facts]:
    """Ask for a summary and for an answer about each row, by the number of its facts.

    Raises:
        DataError: The dataset has no tokenizer, or a number of facts does not fit.
    """
    recall = dataset.manifest.recall
    assert recall is not None, "see Hallucination.misfit"
    tokenizer, keys = open_tokenizer(dataset), RecallVocabulary.of(recall).keys
    rooms = {"summary": 2 * suite.statements - 1, "answer": 1}
    for needles in suite.needles:
        rows, _ = recall_batch(
            recall,
            needles=needles,
            queries=len(TASKS),
            samples=suite.samples,
            seed=suite.samples_seed,
        )
        for place, task in enumerate(TASKS):
            for index, row in enumerate(rows):
                queries = 2 * len(TASKS)
                document, pairs = row[:-queries].tolist(), row[-queries:].tolist()
                key, value = pairs[2 * place : 2 * place + 2]
                yield _Facts(
                    needles=needles,
                    index=index,
                    task=task,
                    document=document,
                    facts=_facts(document, keys),
                    key=key,
                    value=value,
                    room=rooms[task],
                    tokenizer=tokenizer,
                )


def _facts(tokens: list[int], keys: range) -> list[int]:
    """Keys of a document, each with the value behind it, in their order."""
    places = [place for place, token in enumerate(tokens) if token in keys]
    return [token for place in places for token in tokens[place : place + 2]]
