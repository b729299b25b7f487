"""Needle prompts: needles in a haystack and questions about them, in one of two formats.

A sample is a context with N needles and questions about R of them. The first one asked for, the
answer needle, stands at the depth; all others stand at random places. Prompts depend on the suite
and the dataset alone, and samples of all depths share their haystack, so that prompts share
prefixes.

Those in English are in `text`; here are those in the words of the builtin recall corpus, for models
trained on its rows. A key is a city, a value its number: ``f12 k07 v31 f60 ... k07``, and the model
answers ``v31``. The answer needle starts at the token that the depth says, exactly. Each question
is a prompt of its own on the same context, for a training row never asks for two values at once.

Shapes: H = tokens of the haystack, N = needles.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from difftransformer.config.generated_rows import RecallConfig
from difftransformer.data.packed import PackedDataset
from difftransformer.data.recall import RecallVocabulary, haystack
from difftransformer.evaluation.generation import open_tokenizer
from difftransformer.evaluation.retrieval.settings import (
    QUESTIONS_SEED,
    Cell,
    NeedlePrompt,
    RetrievalSuite,
    Span,
)
from difftransformer.evaluation.retrieval.text import PromptBuilder, TextPrompts


def open_builder(suite: RetrievalSuite, dataset: PackedDataset) -> PromptBuilder:
    """Return the builder of a suite's format on a dataset, whose validation split gives text.

    Raises:
        DataError: The dataset has no tokenizer.
    """
    recall, tokenizer = dataset.manifest.recall, open_tokenizer(dataset)
    if recall is not None:
        return RecallPrompts(suite, recall, tokenizer)
    return TextPrompts(suite, dataset, tokenizer)


class RecallPrompts(PromptBuilder):
    """Prompts in the words of the recall corpus."""

    def __init__(self, suite: RetrievalSuite, recall: RecallConfig, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, new_tokens=1)
        self._suite, self._recall = suite, recall
        self._vocabulary = RecallVocabulary.of(recall)
        self._haystack = cache(self._drawn_haystack)

    def prompt(self, cell: Cell, sample: int) -> NeedlePrompt:
        """See `PromptBuilder.prompt`."""
        H = self._suite.haystack(cell.length, self._recall)
        tokens = self._haystack(H, sample).copy()
        draw = np.random.default_rng([QUESTIONS_SEED, 1, H, cell.needles, cell.depth, sample])
        keys = draw.permutation(self._vocabulary.keys)[: cell.needles]
        values = draw.permutation(self._vocabulary.values)[: cell.needles]
        start = answer_start(cell.depth, H)
        places = np.array([start, *_other_places(start, cell.needles - 1, H, draw)])
        tokens[places], tokens[places + 1] = keys, values
        asked = slice(0, cell.asked)
        return NeedlePrompt(
            context=self._words(tokens),
            questions=tuple(f" {self._words([key])}" for key in keys[asked]),
            answers=tuple((self._words([value]),) for value in values[asked]),
            needle=Span(start, start + 2),
            question=Span(H, H + 1),
        )

    def _drawn_haystack(self, H: int, sample: int) -> NDArray[np.int64]:
        """Return the haystack [H] that a sample has at every depth and number of needles."""
        draw = np.random.default_rng([QUESTIONS_SEED, 0, H, sample])
        tokens: NDArray[np.int64] = haystack(self._recall, 1, H, draw)[0]
        return tokens

    def _words(self, tokens: "np.typing.ArrayLike") -> str:
        text: str = self.tokenizer.decode(np.asarray(tokens).tolist())
        return text


def answer_start(depth: int, haystack_length: int) -> int:
    """First token of the answer needle: depth % of the way from the first to the last place."""
    return (depth * (haystack_length - 2) + 50) // 100


def _other_places(start: int, count: int, H: int, draw: np.random.Generator) -> list[int]:
    """Draw starts of the other needles one after the other, each among all places still free."""
    free = np.ones(H - 1, dtype=bool)
    places = [start]
    while len(places) <= count:
        # A place is taken with its neighbors, whose pairs would overlap with it.
        free[max(0, places[-1] - 1) : places[-1] + 2] = False
        places.append(int(draw.choice(np.flatnonzero(free))))
    return places[1:]
