"""Needle prompts: needles in a haystack and questions about them, in one of two formats.

A sample is a context with N needles and questions about R of them. The first one asked for, the
answer needle, stands at the depth; all others stand at random places. Prompts depend on the suite
and the dataset alone, and samples of all depths share their haystack, so that prompts share
prefixes.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tokenizers import Encoding, Tokenizer

from difftransformer.config.needles import NeedlePrompts
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError, DataError


class Span(NamedTuple):
    """Positions start, ..., stop - 1."""

    start: int
    stop: int


class Cell(NamedTuple):
    """One setting of the prompts: N needles, R of them asked for, context length and depth."""

    needles: int
    asked: int
    length: int | None
    depth: int


@dataclass(frozen=True)
class NeedlePrompt:
    """One sample.

    Attributes:
        context: Haystack with its needles.
        questions: Each is appended to the context and generated from.
        answers: Numbers that each question asks for.
        needle: Positions of the answer needle among the tokens of the prompt.
        value: Positions of its number.
        question: Positions of the first question, up to the end of its prompt.
    """

    context: str
    questions: tuple[str, ...]
    answers: tuple[tuple[str, ...], ...]
    needle: Span
    value: Span
    question: Span


class PromptBuilder(Protocol):
    """A format of prompts.

    Attributes:
        tokenizer: What prompts are encoded with.
        opening: Tokens before every prompt; spans count them.
        new_tokens: Room for an answer, in tokens.
        until: Texts that end an answer.
        end: Token that ends an answer; None where there is none.
    """

    tokenizer: Tokenizer
    opening: list[int]
    new_tokens: int
    until: list[str]
    end: int | None

    def prompt(self, cell: Cell, sample: int) -> NeedlePrompt:
        """Make one sample of a cell; the same arguments give the same prompt."""
        ...

    def ids(self, text: str) -> list[int]:
        """Tokens of a prompt, the opening first."""
        ...


def open_builder(
    prompts: NeedlePrompts,
    dataset: PackedDataset,
    *,
    most_needles: int,
    max_positions: int,
    new_tokens: int | None = None,
) -> PromptBuilder:
    """Return the builder of a suite's format on a dataset.

    Args:
        prompts: Format, lengths, depths, samples and seed.
        dataset: The run's dataset; text comes from its validation split.
        most_needles: Largest N.
        max_positions: Longest context of the model.
        new_tokens: Room for an answer; None is the format's own.

    Raises:
        ConfigError: The prompts do not fit the dataset or the model.
        DataError: The dataset has no tokenizer.
    """
    misfit = prompts.misfit(most_needles, max_positions, dataset.manifest.recall)
    if misfit is not None:
        raise ConfigError(f"needle prompts on {dataset.folder}: {misfit}")
    tokenizer = open_tokenizer(dataset)
    # Each format imports only what it needs.
    if dataset.manifest.recall is not None:
        from difftransformer.evaluation.needle_recall import RecallPrompts

        return RecallPrompts(prompts, dataset.manifest.recall, tokenizer, new_tokens)
    from difftransformer.evaluation.needle_text import TextPrompts

    return TextPrompts(prompts, dataset, tokenizer, new_tokens)


def encode(tokenizer: Tokenizer, text: str) -> Encoding:
    """Encode a text as it stands: nothing is added, and no special token is read out of it."""
    return tokenizer.encode(text, add_special_tokens=False)


def open_tokenizer(dataset: PackedDataset) -> Tokenizer:
    """Load a dataset's tokenizer, such that no special token is read out of a text.

    Raises:
        DataError: The dataset has none.
    """
    path = dataset.folder / "tokenizer.json"
    if not path.is_file():
        raise DataError(f"{path}: no such tokenizer; rebuild the dataset with `tokenise`")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # of no kind of its own
        raise DataError(f"{path}: damaged ({error}); rebuild the dataset with `tokenise`") from None
    tokenizer.encode_special_tokens = True
    return tokenizer
