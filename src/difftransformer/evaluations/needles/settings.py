"""Settings of the multi-needle evaluation: suite and report options."""

from collections.abc import Sequence
from itertools import product
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import AnyModel, Reading
from difftransformer.evaluation.retrieval.settings import NeedleSetting, RetrievalSuite
from difftransformer.models.config import ModelConfig


def _check_pair(pair: list[int]) -> list[int]:
    needles, queries = pair
    if not 1 <= queries <= needles:
        raise ValueError(f"[N, R] = {pair}: R of the N needles are queried: R is 1 to {needles}")
    return pair


Pair = Annotated[list[int], Field(min_length=2, max_length=2), AfterValidator(_check_pair)]
"""Setting [N, R] of a prompt: N needles, of which R are queried."""


def group_name(pair: Sequence[int], length: int | None = None, depth: int | None = None) -> str:
    """Return the name of a group of prompts with one setting [N, R], such as n4_r2_l256_d25.

    ``length`` is the context length in tokens, ``depth`` the depth of the answer needle in
    percent; None stands for all lengths or all depths.
    """
    parts = [f"n{pair[0]}_r{pair[1]}"]
    parts += [] if length is None else [f"l{length}"]
    parts += [] if depth is None else [f"d{depth}"]
    return "_".join(parts)


def accuracy_metric(
    pair: Sequence[int], length: int | None = None, depth: int | None = None
) -> str:
    """Return the name of the accuracy metric of a group of prompts, see `group_name`."""
    return f"accuracy_{group_name(pair, length, depth)}"


class Suite(AnyModel, RetrievalSuite):
    """Suite of multi-needle retrieval: an answer is correct if it has the needle's number.

    Answers are generated greedily. In format recall each question is a prompt of its own, answered
    by one token, in batches that fit in a chunk. In format text a question asks for R numbers in at
    most 48 tokens; prompts are answered one after the other, each with the KV cache of the prefix
    that it shares with the previous one.
    """

    repeatable: ClassVar[bool] = True

    kind: Literal["needles"] = setting(meaning="Which evaluation the suite is.")
    pairs: Annotated[list[Pair], Field(min_length=1)] = setting(
        meaning="Settings [N, R], an accuracy each: R of N needles are queried.",
        unit="needles",
        source="arXiv 2410.05258v2, table 2",
    )

    @property
    def most_needles(self) -> int:
        """Largest number of needles in a prompt."""
        return max(needles for needles, _ in self.pairs)

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return the sizes that determine the suite's memory: a prompt, or a batch of them."""
        reading = super().reading(model, longest)
        size = self.batch_size if self.format == "recall" else 1
        return reading._replace(sequences=min(size, max(self.chunk // reading.total, 1)))

    @property
    def cells(self) -> list[NeedleSetting]:
        """Needle settings of all prompts: each [N, R] with each length and depth, in order."""
        combinations = product(self.pairs, self.contexts, self.depths)
        cells = (NeedleSetting(n, r, length, depth) for (n, r), length, depth in combinations)
        return list(dict.fromkeys(cells))

    @property
    def groups(self) -> dict[str, list[NeedleSetting]]:
        """Needle settings by `group_name`: per [N, R], per depth and per length if several."""
        groups: dict[str, list[NeedleSetting]] = {}
        for cell in self.cells:
            for length in (None, cell.length) if len(self.contexts) > 1 else (None,):
                for depth in (None, cell.depth):
                    groups.setdefault(group_name(cell[:2], length, depth), []).append(cell)
        return groups


class Options(evaluation.Options):
    """Report options: accuracies by setting [N, R], or by context length."""

    by: Literal["setting", "length"] = setting(
        "setting", meaning="Columns and panels: settings [N, R], or context lengths of the first."
    )

    @property
    def claim_columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Ids of the columns that claims may test: the last setting's accuracy."""
        return ("hardest",) if self.by == "setting" else ()
