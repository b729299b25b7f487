"""Settings and metric names of the evaluation of context RMS."""

from typing import ClassVar, Literal

from pydantic import model_validator

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import Fact, Reading, WindowSuite, log_spaced
from difftransformer.config.run import RunConfig
from difftransformer.models.config import ModelConfig

KINDS = ("before", "after", "weights")
"""Kinds of magnitude measured for each head, see `measure`."""
QUANTILES = {"_low": 0.05, "_high": 0.95}
"""Suffix of a metric's name -> quantile over windows, layers and heads."""


def position_metric(kind: str, position: int, ending: str = "") -> str:
    """Return the name of the metric for a kind of magnitude at a position.

    ``ending`` is a suffix of QUANTILES for that quantile; empty: the mean.
    """
    return f"{kind}_p{position}{ending}"


class Suite(WindowSuite):
    """Suite of the context RMS: root mean square of head outputs by position (DIFF V2 post).

    It is measured before a per-head RMSNorm and at the input of W_O, relative to the RMS of the
    values. It is also computed under the post's assumption of uncorrelated values with an RMS of 1,
    where it is the Euclidean norm of a row of attention weights.
    """

    map_bytes: ClassVar[float] = 36.0

    kind: Literal["context_rms"] = setting(meaning="Which evaluation the suite is.")
    positions: int = setting(
        7,
        meaning="Positions with a metric, evenly spaced on a logarithmic axis from first_position "
        "to seq_len; duplicates are dropped.",
        ge=2,
    )
    first_position: int = setting(2, meaning="First of these positions.", unit="tokens", gt=0)

    @model_validator(mode="after")
    def _check_first_position(self) -> "Suite":
        if self.first_position >= self.seq_len:
            raise ValueError(
                f"first_position {self.first_position} must be below seq_len {self.seq_len}"
            )
        return self

    @property
    def metric_positions(self) -> list[int]:
        """Positions that have a metric, ascending; the last is ``seq_len``."""
        return log_spaced(self.first_position, self.seq_len, self.positions)

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return the sizes that determine the suite's memory: whole windows, with a KV cache."""
        return super().reading(model, longest)._replace(cached=True)


class Options(evaluation.Options):
    """Report options, and the facts about a model that its bounds depend on."""

    def facts(self, run: RunConfig) -> dict[str, Fact]:
        """Return a run's attention variant, form of lambda (DIFF V2) and number of layers."""
        attention = run.model.attention
        return {
            "variant": attention.variant,
            "lambda_form": getattr(attention, "lambda_form", None),
            "layers": run.model.num_layers,
        }
