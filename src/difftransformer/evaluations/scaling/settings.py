"""What a section of scaling is told: which size counts, how curves are fitted and read."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from difftransformer.config.base import setting
from difftransformer.config.evaluation import Options as Base

OFFSET_FROM = 5
"""Points from which on loss = a * x^-b + c is fitted; fewer fit c = 0. Our choice: only
with c does the fit of the published points give the ratios that the paper states."""
POINTS = 9
"""Points of a curve by tokens, as in figure 3b of arXiv 2410.05258: the validations nearest to so
many equal parts of the budget."""


class Options(Base):
    """How loss by size, or by training tokens, is fitted and compared between rows."""

    needs_family: ClassVar[bool] = True

    by: Literal["size", "tokens"] = setting(
        meaning="Whether points are models of several sizes, or validations along one training"
    )
    parameters: Literal["one_embedding", "non_embedding", "total"] = setting(
        "one_embedding",
        meaning="What the size of a model counts: all but its vocabulary matrices, these and one "
        "of them, or everything. One, so that tying the embeddings changes no size",
        source="arXiv 2410.05258 table 10: the stated sizes count one embedding matrix",
    )
    read_at: float = setting(
        meaning="Where on its curve a row is compared with the other one, as a share of its "
        "largest size or budget",
        gt=0,
        le=1,
    )

    @property
    def suites(self) -> int:  # type: ignore[override]
        """Sizes are evaluated; losses by tokens stand in the histories."""
        return int(self.by == "size")

    @property
    def reads_histories(self) -> bool:
        """By tokens it does."""
        return self.by == "tokens"

    def check_family(self, setups: Sequence[str]) -> None:
        """One size is no curve."""
        if self.by == "size" and len(set(setups)) < 2:
            raise ValueError(f"a curve needs two sizes or more, got {setups}")

    def has_offset(self, points: int) -> bool:
        """Whether so many points are enough for a curve with an offset."""
        return points >= OFFSET_FROM
