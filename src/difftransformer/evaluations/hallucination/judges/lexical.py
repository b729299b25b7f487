"""A judge that looks words up in the document; what it means stands at `LexicalJudge`.

For format recall it is the truth: what a text states are pairs of words, and the document states
exactly the pairs of a key directly followed by its value.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from difftransformer.config.judges import LexicalJudge
from difftransformer.evaluations.hallucination.answers import (
    Answer,
    Cause,
    Judgment,
    states_nothing,
)

_WORD = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+(?:['’-][^\W\d_]+)*")
_SENTENCE_START = re.compile(r"(?:^|[.!?:]['\"”)\]]*\s+|\n\s*)['\"“(\[]*$")
_FUNCTION_TEXT = (
    "a about after all also an and any are as at be because been before but by can could did do "
    "does for from had has have he her his how i if in into is it its may more most no nor not of "
    "on only or other our out over she should so some such than that the their them then there "
    "these they this those to under up was we were what when where which while who whom whose why "
    "will with would yes you your"
)
_FUNCTION_WORDS = frozenset(_FUNCTION_TEXT.split())
_ROUNDING = 1e-9
"""A share that is met exactly is met, however its product is rounded."""


class Words(NamedTuple):
    """Content words of a text in lower case, by what they are."""

    numbers: list[str]
    names: list[str]
    others: list[str]


class Lexical(NamedTuple):
    """Judges by words, and keeps nothing."""

    config: LexicalJudge
    kept: Path

    def judge(self, answers: Sequence[Answer]) -> list[Judgment]:
        """Judge answers, in their order; an empty one is unjudged, since it states nothing."""
        return [self._judge(one) for one in answers]

    def _judge(self, answer: Answer) -> Judgment:
        if not answer.output.split():
            return states_nothing(answer)
        cause, reason = (
            false_pair(answer.document, answer.stated)
            if answer.format == "recall"
            else unsupported(answer, self.config.content_share)
        )
        return Judgment(
            set=answer.set, index=answer.index, free=not cause, cause=cause, reason=reason
        )


open_judge = Lexical


def false_pair(document: str, stated: str) -> tuple[Cause, str]:
    """Find the first pair of a text that its document does not state.

    A text states a pair wherever it has a key: that key and the word behind it. Other words state
    nothing, and neither does a key at the very end.

    Returns:
        ("", "") if there is none; else "contradicted" where the document gives that key another
        value, "invented" where it has no such key or no value stands behind the key, and the pair.
    """
    values = dict(pair for pair in pairwise(document.split()) if pair[0].startswith("k"))
    for key, value in pairwise(stated.split()):
        if key.startswith("k") and values.get(key) != value:
            known = key in values and value.startswith("v")
            return ("contradicted" if known else "invented"), f"{key} {value}"
    return "", ""


def unsupported(answer: Answer, content_share: float) -> tuple[Cause, str]:
    """Find the words of an answer that its document lacks, where they are too many."""
    source = set(_lowered(answer.document)) | set(_lowered(answer.question or ""))
    words = content_words(answer.output)
    missing = [word for word in (*words.numbers, *words.names) if word not in source]
    others = [word for word in words.others if word not in source]
    share = 1.0 if answer.task == "answer" else content_share
    known = len(words.others) - len(others)
    if missing or known < share * len(words.others) - _ROUNDING:
        return "invented", " ".join(dict.fromkeys([*missing, *others]))
    return "", ""


def content_words(text: str) -> Words:
    """Sort the words of a text into numbers, names and others; function words are left out."""
    found = Words([], [], [])
    for match in _WORD.finditer(text):
        word = match.group()
        lowered = _plain(word)
        if word[0].isdigit():
            found.numbers.append(lowered)
        elif lowered in _FUNCTION_WORDS:
            continue
        elif word[0].isupper() and not _SENTENCE_START.search(text[: match.start()]):
            found.names.append(lowered)
        elif len(word) > 2:
            found.others.append(lowered)
    return found


def _lowered(text: str) -> Iterator[str]:
    return (_plain(match.group()) for match in _WORD.finditer(text))


def _plain(word: str) -> str:
    return word.lower().removesuffix("'s").removesuffix("’s")
