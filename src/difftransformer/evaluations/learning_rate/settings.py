"""Report options of a section with a learning-rate sweep."""

from typing import ClassVar, Literal

from difftransformer.config import evaluation
from difftransformer.config.base import setting


class Options(evaluation.Options):
    """Report options: the metric by which learning rates are compared."""

    suites: ClassVar[int] = 0
    tuning: ClassVar[bool] = True

    metric: str = setting(meaning="Metric of the training, such as validation_loss")
    better: Literal["lower", "higher"] = setting(
        "lower", meaning="Whether lower or higher values are better"
    )

    decimals: int = setting(3, meaning="Decimals of the metric", ge=0)

    @property
    def swept(self) -> bool:
        """Whether the section shows a sweep of learning rates: always true."""
        return True
