"""What a section of a learning-rate sweep is told."""

from typing import ClassVar, Literal

from difftransformer.config import evaluation
from difftransformer.config.base import setting


class Options(evaluation.Options):
    """What rates are compared by."""

    suites: ClassVar[int] = 0
    tuning: ClassVar[bool] = True

    metric: str = setting(meaning="Metric of the trainings, such as validation_loss")
    better: Literal["lower", "higher"] = setting("lower", meaning="Which of its values are better")

    decimals: int = setting(3, meaning="Decimals it is written with", ge=0)

    @property
    def swept(self) -> bool:
        """Always."""
        return True
