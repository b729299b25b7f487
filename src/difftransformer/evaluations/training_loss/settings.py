"""Report options of losses along training."""

from typing import ClassVar

from difftransformer.config import evaluation


class Options(evaluation.Options):
    """Report options of losses along training; losses come from histories, not from a suite."""

    suites: ClassVar[int] = 0

    @property
    def reads_histories(self) -> bool:
        """Whether the section reads training histories: always true."""
        return True
