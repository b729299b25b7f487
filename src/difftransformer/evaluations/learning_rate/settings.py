"""Options of a section with a learning-rate sweep."""

from typing import ClassVar, Literal

from difftransformer.config import evaluation
from difftransformer.config.base import setting


class Options(evaluation.Options):
    """Metric by which learning rates are compared."""

    suites: ClassVar[int] = 0
    tuning: ClassVar[bool] = True

    metric: str = setting(meaning="Metric of the training, such as validation_loss")
    better: Literal["lower", "higher"] = setting(
        "lower", meaning="Whether lower or higher values are better"
    )

    decimals: int = setting(3, meaning="Decimals of the metric", ge=0)

    @property
    def swept(self) -> bool:
        """Sections of this kind always show a sweep."""
        return True
