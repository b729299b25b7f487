"""Report options of scaling: the x of the points, and how curves are fitted and compared."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from difftransformer.config.base import setting
from difftransformer.config.evaluation import Options as Base

OFFSET_FROM = 5
"""Minimum number of points to fit loss = a * x^-b + c; fewer points are fitted with c = 0. Our
choice: only with c does the fit of the published points give the ratios that the paper states."""
POINTS = 9
"""Number of points of a curve by tokens, as in figure 3b of arXiv 2410.05258: the validations that
are nearest to multiples of 1/9 of the budget."""


class Options(Base):
    """Report options: the fit of loss by size or training tokens, and how models are compared."""

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
        """Number of suites of a section: 1 by size; 0 by tokens, with losses from histories."""
        return int(self.by == "size")

    @property
    def reads_histories(self) -> bool:
        """Whether the section reads training histories: for losses by tokens."""
        return self.by == "tokens"

    def check_size_grid(self, recipes: Sequence[str]) -> None:
        """Check that a curve by size has at least two different sizes.

        Raises:
            ValueError: All ``recipes`` are equal; there is one per size.
        """
        if self.by == "size" and len(set(recipes)) < 2:
            raise ValueError(f"a curve needs at least two sizes, got {recipes}")

    def has_offset(self, points: int) -> bool:
        """Return whether a curve through ``points`` points is fitted with an offset."""
        return points >= OFFSET_FROM
