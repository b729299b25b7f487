"""Needle prompts in the words of the builtin recall corpus; those in English are in `text`.

A prompt is a context with N needles and questions about R of them. The first queried one, the
answer needle, is at the depth; the others at random positions. Prompts depend only on the suite and
the dataset, and samples of all depths share their haystack, hence prefixes.

A key is a city, a value its number: ``f12 k07 v31 f60 ... k07``, and the model answers ``v31``. The
answer needle starts exactly at the token of the depth. Each question is a prompt of its own on the
same context, since a training row never queries two values at once.

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
    NeedlePrompt,
    NeedleSetting,
    RetrievalSuite,
    Span,
)
from difftransformer.evaluation.retrieval.text import PromptBuilder, TextPrompts


def open_builder(suite: RetrievalSuite, dataset: PackedDataset) -> PromptBuilder:
    """Return the prompt builder for a suite's format, "recall" or "text".

    Format text takes its haystacks from the validation split of the dataset.

    Raises:
        DataError: The dataset has no tokenizer.
    """
    recall, tokenizer = dataset.manifest.recall, open_tokenizer(dataset)
    if recall is not None:
        return RecallPrompts(suite, recall, tokenizer)
    return TextPrompts(suite, dataset, tokenizer)


class RecallPrompts(PromptBuilder):
    """Builds needle prompts from the tokens of the synthetic recall corpus."""

    def __init__(self, suite: RetrievalSuite, recall: RecallConfig, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, max_new_tokens=1)
        self._suite, self._recall = suite, recall
        self._vocabulary = RecallVocabulary.of(recall)
        self._haystack = cache(self._sample_haystack)

    def prompt(self, setting: NeedleSetting, sample: int) -> NeedlePrompt:
        """Return the prompt of a needle setting with the number ``sample``."""
        H = self._suite.haystack(setting.length, self._recall)
        tokens = self._haystack(H, sample).copy()
        rng = np.random.default_rng([QUESTIONS_SEED, 1, H, setting.needles, setting.depth, sample])
        keys = rng.permutation(self._vocabulary.keys)[: setting.needles]
        values = rng.permutation(self._vocabulary.values)[: setting.needles]
        start = answer_needle_start(setting.depth, H)
        positions = np.array([start, *_other_positions(start, setting.needles - 1, H, rng)])
        tokens[positions], tokens[positions + 1] = keys, values
        queried = slice(0, setting.queried)
        return NeedlePrompt(
            context=self._words(tokens),
            questions=tuple(f" {self._words([key])}" for key in keys[queried]),
            answers=tuple((self._words([value]),) for value in values[queried]),
            needle=Span(start, start + 2),
            question=Span(H, H + 1),
        )

    def _sample_haystack(self, H: int, sample: int) -> NDArray[np.int64]:
        """Return the haystack [H] of a sample, the same for every depth and number of needles."""
        rng = np.random.default_rng([QUESTIONS_SEED, 0, H, sample])
        tokens: NDArray[np.int64] = haystack(self._recall, 1, H, rng)[0]
        return tokens

    def _words(self, tokens: "np.typing.ArrayLike") -> str:
        text: str = self.tokenizer.decode(np.asarray(tokens).tolist())
        return text


def answer_needle_start(depth: int, haystack_length: int) -> int:
    """Return the position of the answer needle's first token in a recall haystack.

    ``depth`` is in percent of the way from the first to the last possible position.
    """
    return (depth * (haystack_length - 2) + 50) // 100


def _other_positions(start: int, count: int, H: int, rng: np.random.Generator) -> list[int]:
    """Draw starts of the other needles one after the other, each among the free positions."""
    free = np.ones(H - 1, dtype=bool)
    positions = [start]
    while len(positions) <= count:
        # The neighbors' pairs would overlap with this one.
        free[max(0, positions[-1] - 1) : positions[-1] + 2] = False
        positions.append(int(rng.choice(np.flatnonzero(free))))
    return positions[1:]
