"""Settings, metric names and files of the evaluation of head outputs."""

from typing import Literal

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import AnyModel, Reading, WindowSuite
from difftransformer.models.config import ModelConfig

CKA, IMPORTANCE = "cka", "importance_evenness"
DETAILS = "heads.safetensors"
"""File in the details of a result, for L layers of H heads: ``cka`` [L H, L H], ``importance``
[L, H] and, with Dex, ``cosine`` and ``norm`` [L, H]."""
OVERALL = (CKA, "cka_all", IMPORTANCE, "dex_cosine", "dex_norm", "tokens")
"""Metrics of the whole model; CKA and IMPORTANCE also exist for each layer."""


class Suite(AnyModel, WindowSuite):
    """Suite of similarity of head outputs, importance of heads, and Dex's change of head outputs.

    It reads windows of the validation split.
    """

    kind: Literal["head_features"] = setting(meaning="Which evaluation the suite is.")
    samples: int = setting(
        256,
        meaning="Evenly spaced positions of a batch whose head outputs are compared. Memory "
        "grows with samples² per head.",
        unit="positions",
        source="ours; not stated by arXiv 2505.16333",
        gt=3,
    )

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return the sizes that determine the suite's memory: windows with all their logits."""
        reading = super().reading(model, longest)
        return reading._replace(rows=self.batch_size * reading.new)


class Options(evaluation.Options):
    """Report options: the plot of the figure."""

    plot: Literal["cka", "importance", "dex_change"] = setting(
        "cka",
        meaning="Heat maps of CKA between heads, curves of sorted importance, or one point per "
        "head that Dex changed",
    )
