"""Settings of needle prompts, shared by several evaluations, and the data of a prompt."""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator

from difftransformer.config.base import Sizes, distinct, setting
from difftransformer.config.evaluation import PromptSuite, Reading
from difftransformer.config.generated_rows import GeneratedRows, RecallConfig
from difftransformer.models.config import ModelConfig

TOKENS_PER_NEEDLE = 3
"""Haystack tokens per needle that always leave a position without overlap."""

QUESTIONS_SEED = 30_001
"""Seed of the prompts, the same for every run and seed, so that differences are paired."""

NUM_CITIES = 50
"""Number of cities that needles of format text can name."""

REGIONS = ("bos", "before", "answer", "after", "query")
"""Regions of a needle prompt: first token, context before the answer needle, the needle, context
after it, the question."""
NOISE = "noise"
"""Name of the regions before and after the answer needle together."""

Depth = Annotated[int, Field(ge=0, le=100)]


class NeedleSetting(NamedTuple):
    """A prompt's number of needles, number of queried needles, context length and answer depth."""

    needles: int
    queried: int
    length: int | None
    depth: int


class Span(NamedTuple):
    """Range of token positions from start to stop - 1."""

    start: int
    stop: int


@dataclass(frozen=True)
class NeedlePrompt:
    """A haystack with hidden needles, and questions about some of them.

    Attributes:
        context: Haystack with its needles.
        questions: Questions; the prompt of each is the context followed by the question.
        answers: Expected answers of each question.
        needle: Positions of the answer needle among the tokens of the prompt.
        question: Positions of the first question among the tokens of its prompt.
    """

    context: str
    questions: tuple[str, ...]
    answers: tuple[tuple[str, ...], ...]
    needle: Span
    question: Span


class RetrievalSuite(PromptSuite):
    """Suite of prompts that hide needles in a haystack and query some of them.

    The first queried needle, the answer needle, is at the prompt's depth; the others are at random
    positions.
    """

    format: Literal["text", "recall"] = setting(
        "recall",
        meaning="text: sentences with a city's magic number in held-out text of the run's dataset; "
        "recall: keys and values of the builtin corpus `recall` in its own haystack, for models "
        "trained on that.",
        source="text: template of LWM (github LargeWorldModel/LWM, eval_needle_multi.py); the "
        "DIFF paper does not print its own",
    )
    lengths: Sizes | None = setting(
        None,
        meaning="Context lengths: positions of haystack, question and answer together; null, "
        "for recall alone: questions start where they did in training rows.",
        unit="tokens",
    )
    depths: Annotated[list[Depth], Field(min_length=1), AfterValidator(distinct)] = setting(
        [0, 25, 50, 75, 100],
        meaning="Where the answer needle stands, from the start (0) to the end (100) of the "
        "haystack; in text at the last sentence end before.",
        unit="%",
        source="arXiv 2410.05258v2, section 3.4",
    )
    samples: int = setting(
        50,
        meaning="Prompts for each cell of needles, length and depth.",
        unit="prompts",
        source="arXiv 2410.05258v2, section 3.4",
        gt=0,
    )

    @model_validator(mode="after")
    def _lengths_of_text(self) -> Self:
        if self.format == "text" and self.lengths is None:
            raise ValueError("lengths: format text needs them, such as [4096]")
        return self

    @property
    def proxy(self) -> str | None:
        """Name of the synthetic proxy for English needles, or None in format text."""
        return "keys and values of synthetic tokens" if self.format == "recall" else None

    @property
    def most_needles(self) -> int:
        """Largest number of needles in a prompt."""
        raise NotImplementedError(type(self).__name__)

    @property
    def contexts(self) -> list[int | None]:
        """Context lengths of the prompts in tokens; [None] for the length of training rows."""
        return [None] if self.lengths is None else list(self.lengths)

    def haystack(self, length: int | None, recall: RecallConfig) -> int:
        """Return the number of haystack tokens of a recall prompt.

        ``length`` is the context length, in which question and answer take one token each; None
        means the haystack length of the training rows.
        """
        return recall.haystack_length if length is None else length - 2

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return the sizes that determine the suite's memory: one prompt, computed in chunks."""
        if not self.lengths:
            return super().reading(model, longest)
        longest = min(max(self.lengths), model.max_positions)
        reading = super().reading(model, longest)
        return reading._replace(lower=f"{reading.lower} or {self.kind}.lengths ({longest})")

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """Return why a model's context or the dataset does not fit the suite, or None."""
        needles, recall = self.most_needles, rows if isinstance(rows, RecallConfig) else None
        if (self.format == "recall") != (recall is not None):
            rows_kind = "text" if recall is None else "recall rows"
            return f"format: {self.format} does not fit a dataset of {rows_kind}"
        if recall is None and needles > NUM_CITIES:
            return f"{needles} needles need a city each, there are {NUM_CITIES}"
        for length in self.contexts:
            if recall is not None:
                haystack = self.haystack(length, recall)
                if reason := _recall_incompatibility(needles, haystack, recall):
                    return reason
            positions = length if length is not None else haystack + 2
            if positions > max_positions:
                return (
                    f"lengths: a context of {positions} is longer than the model's positions, "
                    f"max_positions {max_positions}"
                )
        return None


class OneNeedleSuite(RetrievalSuite):
    """Suite of prompts of one length that query one needle, to measure the attention on it.

    The answer span is the whole needle, since a head may read a value from any token to which an
    earlier layer moved it; table 3 of arXiv 2410.05258 and table 2 of 2505.16333 say `answer span`
    without defining it.
    """

    needles: int  # each evaluation has its paper's

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if len(self.contexts) > 1:
            raise ValueError(f"lengths: attention is measured at one, got {self.lengths}")
        return self

    @property
    def most_needles(self) -> int:
        """Number of needles in every prompt."""
        return self.needles


def _recall_incompatibility(needles: int, haystack: int, recall: RecallConfig) -> str | None:
    if needles > min(recall.num_keys, recall.num_values):
        return (
            f"{needles} needles need different keys and values, the dataset has {recall.num_keys} "
            f"keys and {recall.num_values} values"
        )
    if TOKENS_PER_NEEDLE * needles > haystack:
        return (
            f"lengths: {needles} needles at random positions need a haystack of "
            f"{TOKENS_PER_NEEDLE * needles} tokens, got {haystack}"
        )
    return None
