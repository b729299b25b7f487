"""What is asked about context magnitudes."""

from typing import ClassVar, Literal

from pydantic import model_validator

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import Fact, Reading, WindowSuite, log_spaced
from difftransformer.config.run import RunConfig
from difftransformer.models.config import ModelConfig

KINDS = ("before", "after", "weights")
"""Readings of a head, see `measure`."""
QUANTILES = {"_low": 0.05, "_high": 0.95}
"""Ending of a metric -> which part of windows, layers and heads lies below it."""


def place_metric(kind: str, place: int, ending: str = "") -> str:
    """Metric of a kind at a position: the mean, or a quantile by its ending."""
    return f"{kind}_p{place}{ending}"


class Suite(WindowSuite):
    """Root mean square of the heads' outputs before W_O, by position (DIFF V2 post).

    As measured, in units of the values' own RMS, before a headwise norm and as W_O gets them; and
    under the post's assumption of uncorrelated values with an RMS of 1, where it is the Euclidean
    norm of a row of weights.
    """

    map_bytes: ClassVar[float] = 36.0

    kind: Literal["context_rms"] = setting(meaning="Which evaluation the suite is.")
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
    def _positions_lie_inside(self) -> "Suite":
        if self.first_position >= self.seq_len:
            raise ValueError(
                f"first_position {self.first_position} must be below seq_len {self.seq_len}"
            )
        return self

    @property
    def places(self) -> list[int]:
        """Positions with a metric, ascending; the last one is ``seq_len``."""
        return log_spaced(self.first_position, self.seq_len, self.positions)

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Whole windows, whose values are kept in a cache."""
        return super().reading(model, longest)._replace(cached=True)


class Options(evaluation.Options):
    """Bounds depend on a row's mechanism and on its lambda, which each layer learns."""

    def facts(self, run: RunConfig) -> dict[str, Fact]:
        """Which attention a row has, and DIFF V2's form of lambda."""
        attention = run.model.attention
        return {
            "variant": attention.variant,
            "lambda_form": getattr(attention, "lambda_form", None),
            "layers": run.model.num_layers,
        }
