"""What is asked about attention maps."""

from math import ceil
from typing import Literal

from pydantic import model_validator

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import AnyModel, Reading, WindowSuite
from difftransformer.models.config import ModelConfig, layer_metric

KINDS = ("rank", "pearson", "js", "cosine")
"""Ways to compare the two maps of a head, see `agreement`."""
PARTS = ("all", "top")
"""Tokens over which they are compared: all that a query sees, or the most salient of them."""
ALIKE = "_alike"
"""Ends the same of the first map and one that is drawn, see `agreement.alike_everywhere`."""
THRESHOLDS = {"below_1e4": 1e-4, "below_1e6": 1e-6}
"""Share of weights -> what their size stays below."""
BY_LAYER = (
    *(f"{kind}_{part}{end}" for kind in KINDS for part in PARTS for end in ("", ALIKE)),
    *THRESHOLDS,
    *("entropy", "entropy_first", "entropy_second", "entropy_maps"),
    *("negative_share", "positive_size", "negative_size"),
    "distance",
)
"""Metrics of the whole model that each layer has, too."""
DETAILS = "maps.safetensors"
"""File beside a result: ``distance`` of every two heads [L H, L H], mean over windows; ``signed``
and ``absolute``, mean over heads of some rows of each layer [W, L, Q, T], and ``queries`` [Q], the
positions of these."""
KEPT_BYTES, MADE_BYTES = 16.0, 225.0
"""Bytes for each weight of a block of rows: kept of every layer, and made of one at a time, as
measured, which varies by a quarter between equal runs."""
KEPT_WINDOWS, KEPT_QUERIES = 8, 16
"""First windows of which rows are kept, to compare models with, and rows of each, evenly spaced
from first_query on."""
FEWEST = 3
"""Tokens that a correlation takes at least; one of two tokens is 1 or -1 whatever they are."""


def metric_names(layers: int) -> list[str]:
    """Names of all metrics of a model with so many layers, in their order."""
    by_layer = [layer_metric(name, layer) for name in BY_LAYER for layer in range(layers)]
    return [*BY_LAYER, "distance_all", "tokens", *by_layer]


def salient(share: float, visible: int) -> int:
    """How many tokens are the most salient of those that a query sees: a share, rounded up."""
    return ceil(share * visible - 1e-9)


class Suite(AnyModel, WindowSuite):
    """What the maps of a model look like (Dex, sections 2.2 and 2.3).

    Agreement of the two maps of a differential head, over all tokens and over the most salient
    ones; weights near zero, negative ones, entropy; how alike the maps of different heads are.
    """

    kind: Literal["attention_maps"] = setting(meaning="Which evaluation the suite is.")
    top_share: float = setting(
        0.05,
        meaning="Share of the tokens that a query sees that are its most salient, by the map that "
        "is kept, rounded up.",
        source="arXiv 2505.16333, figure 1: 5% of highest attention score, of two maps",
        gt=0,
        lt=1,
    )
    first_query: int = setting(
        61,
        meaning="First position whose two maps are compared: the salient tokens of earlier ones "
        "are too few to correlate.",
        unit="tokens",
        gt=0,
    )

    block: int = setting(
        64, meaning="Queries whose rows of the maps exist at one time.", unit="positions", gt=0
    )

    @model_validator(mode="after")
    def _queries_can_be_compared(self) -> "Suite":
        if self.first_query > self.seq_len:
            raise ValueError(f"first_query {self.first_query} is beyond seq_len {self.seq_len}")
        if (number := salient(self.top_share, self.first_query)) < FEWEST:
            raise ValueError(
                f"first_query {self.first_query} has {number} salient tokens by top_share "
                f"{self.top_share:g}; a correlation takes {FEWEST}"
            )
        return self

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Whole windows, with queries and keys of all layers, and a block of rows of each."""
        found = super().reading(model, longest)
        block = min(self.block, found.total)
        bytes_of_rows = MADE_BYTES + KEPT_BYTES * model.num_layers
        return found._replace(
            cached=True,
            map_bytes=bytes_of_rows * block / found.total,
            lower=self.lower("seq_len", "block"),
        )


class Options(evaluation.Options):
    """Which of the four is shown."""

    shown: Literal["agreement", "scores", "redundancy", "between"] = setting(
        meaning="Agreement of the two maps of a head; weights near zero, entropy and negative "
        "ones; how alike heads are; or how alike the maps of two models are"
    )
