"""Settings of the evaluation of loss by position."""

import re
from collections.abc import Iterable
from typing import ClassVar, Literal

from pydantic import model_validator

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import Reading, log_spaced
from difftransformer.config.generated_rows import GeneratedRows
from difftransformer.models.config import ModelConfig

WINDOW_LOSS = "loss"
"""Metric of the mean loss over the whole window, which is the value at the last position."""


def nll_metric(position: int) -> str:
    """Return the name of the metric (and column) for the mean loss up to a position."""
    return f"nll_p{position}"


def positions_in(names: Iterable[str]) -> list[int]:
    """Return the positions in names of `nll_metric`, ascending; other names are skipped."""
    return sorted(int(match[1]) for name in names if (match := re.fullmatch(r"nll_p(\d+)", name)))


class Suite(evaluation.Suite):
    """Suite of the cumulative mean loss by position in long documents (arXiv 2410.05258, figure 4).

    A window is the first ``length`` tokens of a document, each with the next token as target. The
    value at position p is the mean over the targets 1 to p, then over the documents.
    """

    repeatable: ClassVar[bool] = True

    kind: Literal["nll_by_position"] = setting(meaning="Which evaluation the suite is.")
    length: int = setting(
        meaning="Positions of a document that are read; shorter documents are left out.",
        unit="tokens",
        gt=1,
    )
    num_positions: int = setting(
        12,
        meaning="Number of positions with a metric, evenly spaced on a logarithmic axis from "
        "first_position to length, without repeats.",
        source="figure 4 has ten marks a curve",
        ge=2,
    )
    first_position: int = setting(
        16,
        meaning="The smallest of these positions; means over fewer targets are noisy.",
        unit="tokens",
        source="figure 4 starts at 100 of 64K",
        gt=0,
    )
    max_documents: int | None = setting(
        None,
        meaning="First documents of the validation split that are long enough; null: all.",
        unit="documents",
        gt=0,
    )
    loss_chunk: int = setting(
        1024, meaning="Positions whose logits are in memory at a time.", unit="tokens", gt=0
    )

    @model_validator(mode="after")
    def _check_first_position(self) -> "Suite":
        if self.first_position >= self.length:
            raise ValueError(
                f"first_position {self.first_position} must be below length {self.length}"
            )
        return self

    @property
    def positions(self) -> list[int]:
        """Positions that have a metric, ascending; the last is ``length``."""
        return log_spaced(self.first_position, self.length, self.num_positions)

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """Return why documents do not fit a model's context, or None if they fit."""
        if self.length <= max_positions:
            return None
        return f"length {self.length} is longer than its max_positions {max_positions}"

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return the sizes that determine the suite's memory: a batch of documents."""
        batch, length = self.batch_size, min(self.length, model.max_positions)
        lower = f"{self.lower()} or {self.kind}.length ({length})"
        return Reading(batch, length, length, batch * length, lower, loss_chunk=self.loss_chunk)

    def metric_words(self, name: str) -> str:
        """Return the description of a metric for messages and tables."""
        return "validation loss, nats" if name == WINDOW_LOSS else super().metric_words(name)
