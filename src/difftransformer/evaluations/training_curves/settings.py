"""What a section of curves along training is told."""

from typing import ClassVar

from difftransformer.config import evaluation
from difftransformer.config.base import Settings, setting


class CurveConfig(Settings):
    """One column of the histories."""

    column: str = setting(meaning="Column of history.csv")
    header: str = setting(meaning="What it is, above columns of the table and beside its panel")
    decimals: int = setting(3, meaning="Decimals of its numbers", ge=0, le=9)


class Options(evaluation.Options):
    """Which columns, a panel each."""

    suites: ClassVar[int] = 0

    curves: list[CurveConfig] = setting(meaning="Columns, in their order", min_length=1)

    @property
    def reads_histories(self) -> bool:
        """The table is made of them."""
        return True
