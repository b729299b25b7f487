"""Needle prompts in English sentences, in the template of LWM's eval_needle_multi.py.

The haystack is held-out text of the run's dataset, from the start of a document on. Needles are
inserted at the last sentence end before their depth in tokens, at depth 100 at the very end.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tokenizers import Encoding, Tokenizer

from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError, DataError
from difftransformer.evaluation.generation import encode, opening
from difftransformer.evaluation.retrieval.settings import (
    MOST_CITIES,
    QUESTIONS_SEED,
    Cell,
    NeedlePrompt,
    RetrievalSuite,
    Span,
)

NEEDLE = "\nThe special magic {city} number is: {number}\n"
QUESTION = "What is the special magic number for {cities}?"
QUESTION_SEVERAL = "What are the special magic numbers for {cities}?"
LEAD_IN = "\nAnswer:"
"""Ours: a model without instruction tuning has to be told that an answer comes."""
CITIES = (
    "Accra", "Amsterdam", "Ankara", "Athens", "Auckland", "Bangkok", "Barcelona", "Beijing",
    "Berlin", "Bogota", "Brussels", "Budapest", "Cairo", "Chicago", "Copenhagen", "Dakar", "Delhi",
    "Dublin", "Geneva", "Hanoi", "Havana", "Helsinki", "Istanbul", "Jakarta", "Kyiv", "Lagos",
    "Lima", "Lisbon", "London", "Madrid", "Manila", "Melbourne", "Montreal", "Moscow", "Nairobi",
    "Oslo", "Paris", "Prague", "Quito", "Rome", "Santiago", "Seoul", "Singapore", "Stockholm",
    "Tokyo", "Toronto", "Tunis", "Vienna", "Warsaw", "Zurich",
)  # fmt: skip
assert len(CITIES) == MOST_CITIES
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*(?=\s)|\n")


class Needle(NamedTuple):
    """One needle and its depth in percent."""

    city: str
    number: str
    depth: float

    @property
    def sentence(self) -> str:
        """The line that is inserted."""
        return NEEDLE.format(city=self.city, number=self.number)


class PromptBuilder:
    """A format of prompts.

    Attributes:
        tokenizer: What prompts are encoded with.
        opening: Tokens before every prompt; spans count them.
        new_tokens: Room for an answer, in tokens.
        until: Texts that end an answer.
        end: Token that ends an answer; None where there is none.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        new_tokens: int,
        end: int | None = None,
        until: Sequence[str] = (),
    ) -> None:
        self.tokenizer, self.new_tokens, self.end, self.until = tokenizer, new_tokens, end, until
        self.opening: list[int] = []

    def prompt(self, cell: Cell, sample: int) -> NeedlePrompt:
        """Make one sample of a cell; the same arguments give the same prompt."""
        raise NotImplementedError

    def ids(self, text: str) -> list[int]:
        """Tokens of a prompt, the opening first."""
        return [*self.opening, *encode(self.tokenizer, text).ids]


class TextPrompts(PromptBuilder):
    """Prompts in English sentences."""

    def __init__(self, suite: RetrievalSuite, dataset: PackedDataset, tokenizer: Tokenizer) -> None:
        end = dataset.manifest.tokenizer.eos_id
        assert suite.lengths is not None and end is not None
        super().__init__(tokenizer, new_tokens=48, end=end, until=["\n\n"])
        self.opening = opening(tokenizer, end)
        self._haystacks = _Haystacks(dataset, tokenizer, max(suite.lengths))

    def prompt(self, cell: Cell, sample: int) -> NeedlePrompt:
        """See `PromptBuilder.prompt`."""
        assert cell.length is not None
        draw = np.random.default_rng(
            [QUESTIONS_SEED, 1, *cell[:2], cell.length, cell.depth, sample]
        )
        needles = _needles(cell, draw)
        asked = needles[: cell.asked]
        question = _question([needle.city for needle in asked])
        room = cell.length - len(self.opening) - self.new_tokens
        start = int(np.random.default_rng([QUESTIONS_SEED, 0, sample]).integers(1 << 62))
        size = room - sum(len(self._encode(n.sentence).ids) for n in needles)
        size -= len(self._encode(question).ids)
        while True:
            if size <= 0:
                raise ConfigError(
                    f"lengths: {cell.length} tokens have no room for {cell.needles} needles, a "
                    "question and its answer: use longer ones or fewer needles"
                )
            haystack = self._haystacks.text(start, size)
            context, place = _insert(haystack, needles, self._encode(haystack).offsets)
            encoded = self._encode(context + question)
            excess = len(encoded.ids) - room
            if excess <= 0:
                break
            size -= excess
        return NeedlePrompt(
            context=context,
            questions=(question,),
            answers=(tuple(needle.number for needle in asked),),
            **self._spans(encoded.offsets, context, place, needles[0]),
        )

    def _encode(self, text: str) -> Encoding:
        return encode(self.tokenizer, text)

    def _spans(
        self, offsets: list[tuple[int, int]], context: str, place: int, needle: Needle
    ) -> dict[str, Span]:
        """Spans in tokens of what stands at known characters."""
        sentence = needle.sentence
        first = place + len(sentence) - len(sentence.lstrip())
        last = first + len(sentence.strip())
        before = len(self.opening)

        def tokens(start: int, stop: int) -> Span:
            touched = [i for i, (a, b) in enumerate(offsets) if b > start and a < stop]
            return Span(before + touched[0], before + touched[-1] + 1)

        return {
            "needle": tokens(first, last),
            "question": tokens(len(context), max(b for _, b in offsets)),
        }


class _Haystacks:
    """Held-out text from the start of a document on."""

    def __init__(self, dataset: PackedDataset, tokenizer: Tokenizer, longest: int) -> None:
        split = dataset.split("validation")
        self._tokens, self._tokenizer = split.tokens, tokenizer
        self._end = dataset.manifest.tokenizer.eos_id
        starts = np.concatenate(([0], split.document_ends()[:-1]))
        self._starts = starts[starts + longest <= len(self._tokens)]
        if not len(self._starts):
            raise DataError(
                f"{dataset.folder}: the validation split has {len(self._tokens)} tokens, a "
                f"haystack of {longest} is asked for: raise validation_tokens or lower lengths"
            )

    def text(self, choice: int, size: int) -> str:
        """About ``size`` tokens of text from the document that ``choice`` picks on."""
        start = int(self._starts[choice % len(self._starts)])
        ids = np.asarray(self._tokens[start : start + size])
        ends = np.flatnonzero(ids == self._end)
        documents = [part[part != self._end].tolist() for part in np.split(ids, ends)]
        text: str = "\n\n".join(self._tokenizer.decode(part) for part in documents if part)
        return text.rstrip("\ufffd")  # half a character at the cut


def _needles(cell: Cell, draw: np.random.Generator) -> list[Needle]:
    """Answer needle first, at the cell's depth; the others at random depths."""
    cities = draw.permutation(CITIES)[: cell.needles]
    numbers = draw.choice(9_000_000, size=cell.needles, replace=False) + 1_000_000
    depths = [float(cell.depth), *draw.uniform(0, 100, size=cell.needles - 1)]
    return [
        Needle(str(city), str(number), depth)
        for city, number, depth in zip(cities, numbers, depths, strict=True)
    ]


def _question(cities: list[str]) -> str:
    *most, last = cities
    listed = f"{', '.join(most)} and {last}" if most else last
    return "\n" + (QUESTION_SEVERAL if most else QUESTION).format(cities=listed) + LEAD_IN


def insertion(text: str, offsets: list[tuple[int, int]], depth: float) -> int:
    """Character at which a needle of this depth goes: the last sentence end before it in tokens."""
    index = int(depth / 100 * len(offsets))
    if index >= len(offsets):
        return len(text)
    limit = offsets[index][0]
    ends = [match.end() for match in _SENTENCE_END.finditer(text, 0, limit + 1)]
    return max((end for end in ends if end <= limit), default=0)


def _insert(text: str, needles: list[Needle], offsets: list[tuple[int, int]]) -> tuple[str, int]:
    """Text with all needles, and the character at which the first of them starts in it."""
    places = [insertion(text, offsets, needle.depth) for needle in needles]
    parts, done, answer = [], 0, 0
    for place, index in sorted(zip(places, range(len(needles)), strict=True)):
        parts.append(text[done:place])
        if index == 0:
            answer = sum(map(len, parts))
        parts.append(needles[index].sentence)
        done = place
    return "".join([*parts, text[done:]]), answer
