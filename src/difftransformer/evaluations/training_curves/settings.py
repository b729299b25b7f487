"""Report options of training curves."""

from typing import ClassVar

from difftransformer.config import evaluation
from difftransformer.config.base import Settings, setting


class CurveConfig(Settings):
    """A column of the training history to show, with its header and decimals."""

    column: str = setting(meaning="Column of history.csv")
    header: str = setting(meaning="Header of the table's columns and label of the panel")
    decimals: int = setting(3, meaning="Decimals of its numbers", ge=0, le=9)


class Options(evaluation.Options):
    """Report options: the columns of the training history to show."""

    suites: ClassVar[int] = 0

    curves: list[CurveConfig] = setting(meaning="Columns, in their order", min_length=1)

    @property
    def reads_histories(self) -> bool:
        """Whether the section reads training histories: always true."""
        return True
