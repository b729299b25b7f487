"""Lexical judge: it looks up an answer's words in the document; see `LexicalJudge`.

The judge is exact in format recall, where documents and answers state key-value pairs: a key
directly followed by its value.
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
    empty_judgment,
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
"""Tolerance of the share of supported words, so that a share equal to the threshold passes."""


class Words(NamedTuple):
    """Lower-case words of a text by kind: numbers, names, and other content words."""

    numbers: list[str]
    names: list[str]
    content: list[str]


class WordJudge(NamedTuple):
    """Judge that compares the words of an answer with those of its document."""

    config: LexicalJudge

    def judge(self, answers: Sequence[Answer]) -> list[Judgment]:
        """Return the judgments of answers, in their order; an empty answer stays unjudged."""
        return [self._judge(answer) for answer in answers]

    def _judge(self, answer: Answer) -> Judgment:
        if not answer.output.split():
            return empty_judgment(answer)
        cause, reason = (
            false_pair(answer.document, answer.judged_text)
            if answer.format == "recall"
            else unsupported(answer, self.config.content_share)
        )
        return Judgment(
            set=answer.set, index=answer.index, faithful=not cause, cause=cause, reason=reason
        )


def open_judge(config: LexicalJudge, cache_folder: Path) -> WordJudge:
    """Return the lexical judge with the given settings; it does not use ``cache_folder``."""
    return WordJudge(config)


def false_pair(document: str, text: str) -> tuple[Cause, str]:
    """Return the first key-value pair of a text that its document does not state, and the cause.

    A key in the text and the word after it state a pair. Other words state nothing, and neither
    does a key at the end of the text.

    Returns:
        ("", "") if the document states all pairs; else the cause and the pair. The cause is
        "contradicted" if the document gives that key another value, "unsupported" if the document
        lacks the key or the word after it is not a value.
    """
    values = dict(pair for pair in pairwise(document.split()) if pair[0].startswith("k"))
    for key, value in pairwise(text.split()):
        if key.startswith("k") and values.get(key) != value:
            contradicts = key in values and value.startswith("v")
            return ("contradicted" if contradicts else "unsupported"), f"{key} {value}"
    return "", ""


def unsupported(answer: Answer, content_share: float) -> tuple[Cause, str]:
    """Return the cause "unsupported" and the words of an answer that its document lacks.

    Any missing number or name counts, and missing content words if fewer than ``content_share``
    of them are in the document (all must be in answers to questions). Returns ("", "") if the
    answer is supported.
    """
    source = set(_lowered(answer.document)) | set(_lowered(answer.question or ""))
    words = content_words(answer.output)
    missing = [word for word in (*words.numbers, *words.names) if word not in source]
    missing_content = [word for word in words.content if word not in source]
    share = 1.0 if answer.task == "answer" else content_share
    supported = len(words.content) - len(missing_content)
    if missing or supported < share * len(words.content) - _ROUNDING:
        return "unsupported", " ".join(dict.fromkeys([*missing, *missing_content]))
    return "", ""


def content_words(text: str) -> Words:
    """Return the numbers, names and other content words of a text, without function words."""
    words = Words([], [], [])
    for match in _WORD.finditer(text):
        word = match.group()
        lowered = _plain(word)
        if word[0].isdigit():
            words.numbers.append(lowered)
        elif lowered in _FUNCTION_WORDS:
            continue
        elif word[0].isupper() and not _SENTENCE_START.search(text[: match.start()]):
            words.names.append(lowered)
        elif len(word) > 2:
            words.content.append(lowered)
    return words


def _lowered(text: str) -> Iterator[str]:
    return (_plain(match.group()) for match in _WORD.finditer(text))


def _plain(word: str) -> str:
    return word.lower().removesuffix("'s").removesuffix("’s")
