"""Settings of the suite of losses by position."""

from typing import Literal

from pydantic import model_validator

from difftransformer.config.base import setting
from difftransformer.config.suites.base import SuiteSettings, log_places


class NllByPosition(SuiteSettings):
    """Cumulative mean loss of held-out long documents by position (figure 4 of arXiv 2410.05258).

    One document is one window: its first ``length`` tokens, none before them, and the token after
    each as target. The value at position p is the mean over the targets 1 to p, then over the
    documents.
    """

    kind: Literal["nll_by_position"] = setting(meaning="Which measurement the suite is.")
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
    def _positions_lie_inside(self) -> "NllByPosition":
        if self.first_position >= self.length:
            raise ValueError(
                f"first_position {self.first_position} must be below length {self.length}"
            )
        return self

    @property
    def places(self) -> list[int]:
        """Positions with a metric, ascending; the last one is ``length``."""
        return log_places(self.first_position, self.length, self.positions)
