"""What is asked about losses by position."""

import re
from collections.abc import Iterable
from typing import ClassVar, Literal

from pydantic import model_validator

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import Reading, log_places
from difftransformer.config.generated_rows import GeneratedRows
from difftransformer.models.config import ModelConfig

WHOLE = "loss"
"""Loss over whole windows: that at the last position, at every scale under one name."""


def nll_name(place: int) -> str:
    """Metric, and column, of the mean loss up to a position."""
    return f"nll_p{place}"


def places_in(names: Iterable[str]) -> list[int]:
    """Positions that names of `nll_name` are about, ascending; others are left out."""
    return sorted(int(found[1]) for name in names if (found := re.fullmatch(r"nll_p(\d+)", name)))


class Suite(evaluation.Suite):
    """Cumulative mean loss of held-out long documents by position (figure 4 of arXiv 2410.05258).

    One document is one window: its first ``length`` tokens, none before them, and the token after
    each as target. The value at position p is the mean over the targets 1 to p, then over the
    documents.
    """

    repeatable: ClassVar[bool] = True

    kind: Literal["nll_by_position"] = setting(meaning="Which evaluation the suite is.")
    length: int = setting(
        meaning="Positions of a document that are read; shorter documents are left out.",
        unit="tokens",
        gt=1,
    )
    positions: int = setting(
        12,
        meaning="Positions with a metric, evenly spaced on a logarithmic axis from "
        "first_position to length; of equal ones one.",
        source="figure 4 has ten marks a curve",
        ge=2,
    )
    first_position: int = setting(
        16,
        meaning="The smallest of these positions: means over fewer targets say little.",
        unit="tokens",
        source="figure 4 starts at 100 of 64K",
        gt=0,
    )
    max_documents: int | None = setting(
        None,
        meaning="Documents taken, the first long enough of the validation split; null: all.",
        unit="documents",
        gt=0,
    )
    loss_chunk: int = setting(
        1024, meaning="Positions whose logits exist at one time.", unit="tokens", gt=0
    )

    @model_validator(mode="after")
    def _positions_lie_inside(self) -> "Suite":
        if self.first_position >= self.length:
            raise ValueError(
                f"first_position {self.first_position} must be below length {self.length}"
            )
        return self

    @property
    def places(self) -> list[int]:
        """Positions with a metric, ascending; the last one is ``length``."""
        return log_places(self.first_position, self.length, self.positions)

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """Documents must not be longer than the model's context."""
        if self.length <= max_positions:
            return None
        return f"length {self.length} is longer than its max_positions {max_positions}"

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Whole documents, a batch at a time, and the logits of a chunk of them."""
        batch, length = self.batch_size, min(self.length, model.max_positions)
        lower = f"{self.lower()} or {self.kind}.length ({length})"
        return Reading(batch, length, length, batch * length, lower, loss_chunk=self.loss_chunk)

    def metric_words(self, name: str) -> str:
        """See `evaluation.Suite.metric_words`."""
        return "validation loss, nats" if name == WHOLE else super().metric_words(name)
