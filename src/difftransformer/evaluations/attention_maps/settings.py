"""Settings, metric names and files of the evaluation of attention maps."""

from math import ceil
from typing import Literal

from pydantic import model_validator

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import AnyModel, Reading, WindowSuite
from difftransformer.models.config import ModelConfig, layer_metric

MEASURES = ("spearman", "pearson", "js", "cosine")
"""Names of the similarity measures of a head's two maps, see `map_similarity`."""
TOKENS = ("all", "top")
"""Tokens over which maps are compared: all that a query attends to, or the most salient ones."""
SURROGATE = "_surrogate"
"""Ending of the metrics of the surrogate maps, see `map_similarity.surrogate_map`."""
THRESHOLDS = {"below_1e4": 1e-4, "below_1e6": 1e-6}
"""Metric (a fraction of weights) -> magnitude below which a weight counts."""
BY_LAYER = (
    *(f"{measure}_{end}{kind}" for measure in MEASURES for end in TOKENS
      for kind in ("", SURROGATE)),
    *THRESHOLDS,
    *("entropy", "entropy_first", "entropy_second", "entropy_maps"),
    *("negative_fraction", "positive_magnitude", "negative_magnitude"),
    "distance",
)  # fmt: skip
"""Metrics that exist for the whole model and for each layer."""
DETAILS = "maps.safetensors"
"""File beside a result: ``distance`` of every two heads [L H, L H], mean over windows; ``signed``
and ``absolute``, some rows of each layer averaged over heads [W, L, Q, T], and ``queries`` [Q], the
positions of these rows."""
STORED_BYTES, WORKING_BYTES = 16.0, 225.0
"""Bytes per weight of a block of rows: stored for every layer, and used for one layer at a time;
measured, varies by a quarter between equal runs."""
SAVED_WINDOWS, SAVED_QUERIES = 8, 16
"""Windows, and evenly spaced rows of each from first_query on, saved to compare models."""
MIN_SALIENT = 3
"""Minimum number of tokens for a correlation; over two tokens it is always 1 or -1."""


def metric_names(layers: int) -> list[str]:
    """Return the names of all metrics of a model with ``layers`` layers, in order."""
    by_layer = [layer_metric(name, layer) for name in BY_LAYER for layer in range(layers)]
    return [*BY_LAYER, "distance_all", "tokens", *by_layer]


def num_salient(fraction: float, visible: int) -> int:
    """Return the number of salient tokens: ``fraction`` of the ``visible`` ones, rounded up."""
    return ceil(fraction * visible - 1e-9)


class Suite(AnyModel, WindowSuite):
    """Suite of metrics of a model's attention maps (Dex, sections 2.2 and 2.3).

    It measures the similarity of the two maps of a differential head, over all tokens and over the
    most salient ones; near-zero weights, negative weights and entropy; and the distance between
    the maps of heads.
    """

    kind: Literal["attention_maps"] = setting(meaning="Which evaluation the suite is.")
    top_fraction: float = setting(
        0.05,
        meaning="Fraction of the tokens that a query attends to that are its most salient: those "
        "with the largest weights in the positive map; rounded up.",
        source="arXiv 2505.16333, figure 1: 5% of highest attention score, of two maps",
        gt=0,
        lt=1,
    )
    first_query: int = setting(
        61,
        meaning="First position whose two maps are compared; earlier positions have too few "
        "salient tokens for a correlation.",
        unit="tokens",
        gt=0,
    )

    block: int = setting(
        64, meaning="Queries whose rows of the maps are in memory at a time.", unit="positions",
        gt=0,
    )  # fmt: skip

    @model_validator(mode="after")
    def _check_first_query(self) -> "Suite":
        if self.first_query > self.seq_len:
            raise ValueError(f"first_query {self.first_query} is beyond seq_len {self.seq_len}")
        if (tokens := num_salient(self.top_fraction, self.first_query)) < MIN_SALIENT:
            raise ValueError(
                f"first_query {self.first_query} has {tokens} salient tokens at top_fraction "
                f"{self.top_fraction:g}; a correlation needs {MIN_SALIENT}"
            )
        return self

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return the sizes that determine the suite's memory: windows, and a block of maps."""
        reading = super().reading(model, longest)
        block = min(self.block, reading.total)
        bytes_of_rows = WORKING_BYTES + STORED_BYTES * model.num_layers
        return reading._replace(
            cached=True,
            map_bytes=bytes_of_rows * block / reading.total,
            lower=self.lower("seq_len", "block"),
        )


class Options(evaluation.Options):
    """Report options: the topic of a section."""

    topic: Literal["map_similarity", "weights", "head_redundancy", "model_similarity"] = setting(
        meaning="Similarity of the two maps of a head; near-zero weights, negative weights and "
        "entropy; distance between heads; or similarity of the maps of two models"
    )
