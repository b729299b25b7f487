"""Settings of the suite of context magnitudes."""

from typing import Literal

from pydantic import model_validator

from difftransformer.config.base import setting
from difftransformer.config.suites.base import log_places
from difftransformer.config.suites.windows import WindowSuite


class ContextRms(WindowSuite):
    """Root mean square of the heads' outputs before W_O, by position (DIFF V2 post).

    As measured, in units of the values' own RMS, before a headwise norm and as W_O gets them; and
    under the post's assumption of uncorrelated values with an RMS of 1, where it is the Euclidean
    norm of a row of weights.
    """

    kind: Literal["context_rms"] = setting(meaning="Which measurement the suite is.")
    positions: int = setting(
        7,
        meaning="Positions with a metric, evenly spaced on a logarithmic axis from first_position "
        "to seq_len; of equal ones one.",
        ge=2,
    )
    first_position: int = setting(
        2, meaning="The smallest of these positions.", unit="tokens", gt=0
    )

    @model_validator(mode="after")
    def _positions_lie_inside(self) -> "ContextRms":
        if self.first_position >= self.seq_len:
            raise ValueError(
                f"first_position {self.first_position} must be below seq_len {self.seq_len}"
            )
        return self

    @property
    def places(self) -> list[int]:
        """Positions with a metric, ascending; the last one is ``seq_len``."""
        return log_places(self.first_position, self.seq_len, self.positions)
