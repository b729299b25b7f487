"""Needle prompts in English, in the template of LWM's eval_needle_multi.py.

The haystack is validation text of the run's dataset from the start of a document. A needle is
inserted at the last sentence end before its depth in tokens; depth 100 is the end.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tokenizers import Encoding, Tokenizer

from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError, DataError
from difftransformer.evaluation.generation import encode, prefix_token_ids
from difftransformer.evaluation.retrieval.settings import (
    NUM_CITIES,
    QUESTIONS_SEED,
    NeedlePrompt,
    NeedleSetting,
    RetrievalSuite,
    Span,
)

NEEDLE = "\nThe special magic {city} number is: {number}\n"
QUESTION = "What is the special magic number for {cities}?"
QUESTION_SEVERAL = "What are the special magic numbers for {cities}?"
ANSWER_PROMPT = "\nAnswer:"
"""Text after a question, which cues models without instruction tuning to answer (ours)."""
CITIES = (
    "Accra", "Amsterdam", "Ankara", "Athens", "Auckland", "Bangkok", "Barcelona", "Beijing",
    "Berlin", "Bogota", "Brussels", "Budapest", "Cairo", "Chicago", "Copenhagen", "Dakar", "Delhi",
    "Dublin", "Geneva", "Hanoi", "Havana", "Helsinki", "Istanbul", "Jakarta", "Kyiv", "Lagos",
    "Lima", "Lisbon", "London", "Madrid", "Manila", "Melbourne", "Montreal", "Moscow", "Nairobi",
    "Oslo", "Paris", "Prague", "Quito", "Rome", "Santiago", "Seoul", "Singapore", "Stockholm",
    "Tokyo", "Toronto", "Tunis", "Vienna", "Warsaw", "Zurich",
)  # fmt: skip
assert len(CITIES) == NUM_CITIES
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*(?=\s)|\n")


class Needle(NamedTuple):
    """An English needle: a city, its magic number, and the depth in the haystack in percent."""

    city: str
    number: str
    depth: float

    @property
    def sentence(self) -> str:
        """The line of text to insert into the haystack."""
        return NEEDLE.format(city=self.city, number=self.number)


class PromptBuilder:
    """Base class of the builders of needle prompts, one per format.

    Attributes:
        tokenizer: Encodes the prompts.
        prefix_ids: Token ids before every prompt; positions of spans count them.
        max_new_tokens: Maximum number of tokens of an answer.
        until: Texts that end an answer.
        eos_id: Token that ends an answer; None: there is none.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_new_tokens: int,
        eos_id: int | None = None,
        until: Sequence[str] = (),
    ) -> None:
        self.tokenizer, self.max_new_tokens = tokenizer, max_new_tokens
        self.eos_id, self.until = eos_id, until
        self.prefix_ids: list[int] = []

    def prompt(self, setting: NeedleSetting, sample: int) -> NeedlePrompt:
        """Return the prompt of a needle setting with the number ``sample``.

        The same arguments give the same prompt.
        """
        raise NotImplementedError

    def token_ids(self, text: str) -> list[int]:
        """Return the token ids of a prompt's text, after the builder's prefix."""
        return [*self.prefix_ids, *encode(self.tokenizer, text).ids]


class TextPrompts(PromptBuilder):
    """Builds needle prompts of English sentences in validation text."""

    def __init__(self, suite: RetrievalSuite, dataset: PackedDataset, tokenizer: Tokenizer) -> None:
        eos_id = dataset.manifest.tokenizer.eos_id
        assert suite.lengths is not None and eos_id is not None
        super().__init__(tokenizer, max_new_tokens=48, eos_id=eos_id, until=["\n\n"])
        self.prefix_ids = prefix_token_ids(tokenizer, eos_id)
        self._haystacks = _Haystacks(dataset, tokenizer, max(suite.lengths))

    def prompt(self, setting: NeedleSetting, sample: int) -> NeedlePrompt:
        """Return the prompt of a needle setting with the number ``sample``.

        Raises:
            ConfigError: The context length is too short for needles, question and answer.
        """
        assert setting.length is not None
        rng = np.random.default_rng(
            [QUESTIONS_SEED, 1, *setting[:2], setting.length, setting.depth, sample]
        )
        needles = _sample_needles(setting, rng)
        queried = needles[: setting.queried]
        question = _question([needle.city for needle in queried])
        budget = setting.length - len(self.prefix_ids) - self.max_new_tokens
        start = int(np.random.default_rng([QUESTIONS_SEED, 0, sample]).integers(1 << 62))
        size = budget - sum(len(self._encode(needle.sentence).ids) for needle in needles)
        size -= len(self._encode(question).ids)
        while True:
            if size <= 0:
                raise ConfigError(
                    f"lengths: {setting.length} tokens are too few for {setting.needles} needles, "
                    "a question and its answer: use longer ones or fewer needles"
                )
            haystack = self._haystacks.text(start, size)
            context, offset = _insert(haystack, needles, self._encode(haystack).offsets)
            encoding = self._encode(context + question)
            excess = len(encoding.ids) - budget
            if excess <= 0:
                break
            size -= excess
        return NeedlePrompt(
            context=context,
            questions=(question,),
            answers=(tuple(needle.number for needle in queried),),
            **self._spans(encoding.offsets, context, offset, needles[0]),
        )

    def _encode(self, text: str) -> Encoding:
        return encode(self.tokenizer, text)

    def _spans(
        self, offsets: list[tuple[int, int]], context: str, needle_offset: int, needle: Needle
    ) -> dict[str, Span]:
        """Return the spans in tokens of the answer needle and the question."""
        sentence = needle.sentence
        first = needle_offset + len(sentence) - len(sentence.lstrip())
        last = first + len(sentence.strip())
        before = len(self.prefix_ids)

        def tokens(start: int, stop: int) -> Span:
            touched = [i for i, (a, b) in enumerate(offsets) if b > start and a < stop]
            return Span(before + touched[0], before + touched[-1] + 1)

        return {
            "needle": tokens(first, last),
            "question": tokens(len(context), max(b for _, b in offsets)),
        }


class _Haystacks:
    """Validation text from the start of a document."""

    def __init__(self, dataset: PackedDataset, tokenizer: Tokenizer, longest: int) -> None:
        split = dataset.split("validation")
        self._tokens, self._tokenizer = split.tokens, tokenizer
        self._eos_id = dataset.manifest.tokenizer.eos_id
        starts = np.concatenate(([0], split.document_ends()[:-1]))
        self._starts = starts[starts + longest <= len(self._tokens)]
        if not len(self._starts):
            raise DataError(
                f"{dataset.folder}: the validation split has {len(self._tokens)} tokens, fewer "
                f"than a haystack of {longest}: raise validation_tokens or lower lengths"
            )

    def text(self, choice: int, size: int) -> str:
        """Return about ``size`` tokens of text from the document number ``choice`` on."""
        start = int(self._starts[choice % len(self._starts)])
        ids = np.asarray(self._tokens[start : start + size])
        ends = np.flatnonzero(ids == self._eos_id)
        documents = [part[part != self._eos_id].tolist() for part in np.split(ids, ends)]
        text: str = "\n\n".join(self._tokenizer.decode(part) for part in documents if part)
        return text.rstrip("\ufffd")  # half a character at the end


def _sample_needles(setting: NeedleSetting, rng: np.random.Generator) -> list[Needle]:
    """Return the answer needle at the setting's depth, then the others at random depths."""
    cities = rng.permutation(CITIES)[: setting.needles]
    numbers = rng.choice(9_000_000, size=setting.needles, replace=False) + 1_000_000
    depths = [float(setting.depth), *rng.uniform(0, 100, size=setting.needles - 1)]
    return [
        Needle(str(city), str(number), depth)
        for city, number, depth in zip(cities, numbers, depths, strict=True)
    ]


def _question(cities: list[str]) -> str:
    *first, last = cities
    names = f"{', '.join(first)} and {last}" if first else last
    return "\n" + (QUESTION_SEVERAL if first else QUESTION).format(cities=names) + ANSWER_PROMPT


def insertion_point(text: str, offsets: list[tuple[int, int]], depth: float) -> int:
    """Return the character index in a text at which to insert a needle.

    It is the last sentence end before ``depth`` percent of the tokens; at depth 100 the end of
    the text. ``offsets`` are the (start, stop) character offsets of the text's tokens.
    """
    index = int(depth / 100 * len(offsets))
    if index >= len(offsets):
        return len(text)
    limit = offsets[index][0]
    ends = [match.end() for match in _SENTENCE_END.finditer(text, 0, limit + 1)]
    return max((end for end in ends if end <= limit), default=0)


def _insert(text: str, needles: list[Needle], offsets: list[tuple[int, int]]) -> tuple[str, int]:
    """Return the text with all needles, and the character at which the first needle starts."""
    points = [insertion_point(text, offsets, needle.depth) for needle in needles]
    parts, done, answer = [], 0, 0
    for point, index in sorted(zip(points, range(len(needles)), strict=True)):
        parts.append(text[done:point])
        if index == 0:
            answer = sum(map(len, parts))
        parts.append(needles[index].sentence)
        done = point
    return "".join([*parts, text[done:]]), answer
