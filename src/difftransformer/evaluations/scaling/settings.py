"""Options of a scaling section: which size counts, how curves are fitted and compared."""

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
    """How loss by size, or by training tokens, is fitted and compared between models."""

    needs_size_grid: ClassVar[bool] = True

    by: Literal["size", "tokens"] = setting(
        meaning="Whether points are models of several sizes, or validations along one training"
    )
    compare_at: float = setting(
        meaning="Where a model's curve is compared with its baseline's, as a fraction of the "
        "model's largest size or budget",
        gt=0,
        le=1,
    )

    @property
    def suites(self) -> int:  # type: ignore[override]
        """Suites that a section needs: losses by tokens are in the training histories."""
        return int(self.by == "size")

    @property
    def reads_histories(self) -> bool:
        """Whether a section reads training histories."""
        return self.by == "tokens"

    def check_size_grid(self, recipes: Sequence[str]) -> None:
        """Raise if a curve by size has a single size."""
        if self.by == "size" and len(set(recipes)) < 2:
            raise ValueError(f"a curve needs at least two sizes, got {recipes}")

    def has_offset(self, points: int) -> bool:
        """Return whether a curve through so many points has an offset."""
        return points >= OFFSET_FROM
