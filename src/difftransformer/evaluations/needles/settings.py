"""What is asked about retrieval of needles, and what a section shows of it."""

from collections.abc import Sequence
from itertools import product
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import AnyModel, Reading
from difftransformer.evaluation.retrieval.settings import Cell, RetrievalSuite
from difftransformer.models.config import ModelConfig


def _pair(pair: list[int]) -> list[int]:
    needles, asked = pair
    if not 1 <= asked <= needles:
        raise ValueError(
            f"[N, R] = {pair}: R of the N needles are asked for, so R is 1 to N = {needles}"
        )
    return pair


Pair = Annotated[list[int], Field(min_length=2, max_length=2), AfterValidator(_pair)]
"""[N, R]: R of N needles are asked for."""


def group_name(pair: Sequence[int], length: int | None = None, depth: int | None = None) -> str:
    """Name of the cells of a setting [N, R], such as n4_r2_l256_d25; None: of all there are."""
    parts = [f"n{pair[0]}_r{pair[1]}"]
    parts += [] if length is None else [f"l{length}"]
    parts += [] if depth is None else [f"d{depth}"]
    return "_".join(parts)


def accuracy_name(pair: Sequence[int], length: int | None = None, depth: int | None = None) -> str:
    """Metric of the accuracy in these cells."""
    return f"accuracy_{group_name(pair, length, depth)}"


class Suite(AnyModel, RetrievalSuite):
    """Multi-needle retrieval: the model generates greedily, and a needle counts as answered if its
    number occurs in the output. In format recall each question is a prompt of its own, answered by
    one token, in batches that fit in a chunk. In text one question asks for R numbers in at most 48
    tokens; such prompts are answered one by one, and each reuses the prefix it shares with the
    last.
    """

    repeatable: ClassVar[bool] = True

    kind: Literal["needles"] = setting(meaning="Which evaluation the suite is.")
    pairs: Annotated[list[Pair], Field(min_length=1)] = setting(
        meaning="Settings [N, R]: R of N needles are asked for, an accuracy each.",
        unit="needles",
        source="arXiv 2410.05258v2, table 2",
    )

    @property
    def most_needles(self) -> int:
        """Largest N."""
        return max(needles for needles, _ in self.pairs)

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return one prompt, or a batch of prompts in format recall."""
        reading = super().reading(model, longest)
        size = self.batch_size if self.format == "recall" else 1
        return reading._replace(sequences=min(size, max(self.chunk // reading.total, 1)))

    @property
    def cells(self) -> list[Cell]:
        """Every setting with each length and depth, in the order they are asked in."""
        found = product(self.pairs, self.contexts, self.depths)
        return list(dict.fromkeys(Cell(n, r, length, depth) for (n, r), length, depth in found))

    @property
    def groups(self) -> dict[str, list[Cell]]:
        """Cells by the name of their group: of a setting, each depth and each of several lengths.

        The parts of a name tell what is held fixed.
        """
        groups: dict[str, list[Cell]] = {}
        for cell in self.cells:
            for length in (None, cell.length) if len(self.contexts) > 1 else (None,):
                for depth in (None, cell.depth):
                    groups.setdefault(group_name(cell[:2], length, depth), []).append(cell)
        return groups


class Options(evaluation.Options):
    """What a section shows of it."""

    by: Literal["setting", "length"] = setting(
        "setting", meaning="Columns and panels: settings [N, R], or context lengths of the first."
    )

    @property
    def claim_columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The last setting."""
        return ("hardest",) if self.by == "setting" else ()
