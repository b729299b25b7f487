"""What a section of losses along training needs."""

from typing import ClassVar

from difftransformer.config import evaluation


class Options(evaluation.Options):
    """No suite: it is made of the histories."""

    suites: ClassVar[int] = 0

    @property
    def reads_histories(self) -> bool:
        """Its columns are points of the curves."""
        return True
