"""What is asked about the outputs of heads."""

from typing import Literal

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import AnyModel, Reading, WindowSuite
from difftransformer.models.config import ModelConfig

CKA, IMPORTANCE = "cka", "importance_even"
DETAILS = "heads.safetensors"
"""What is left for L layers of H heads: ``cka`` [L H, L H], ``importance`` [L, H] and, of Dex,
``cosine`` and ``norm`` [L, H]."""
OVERALL = (CKA, "cka_all", IMPORTANCE, "dex_cosine", "dex_norm", "tokens")
"""Metrics of the whole model; the first and third by layer, too."""


class Suite(AnyModel, WindowSuite):
    """Alignment of heads, importance of heads, and the change that Dex makes of them.

    Works on windows of the validation split.
    """

    kind: Literal["head_features"] = setting(meaning="Which evaluation the suite is.")
    samples: int = setting(
        256,
        meaning="Positions of a batch whose features are compared, evenly spaced; the more, the "
        "larger the matrices of their products, samples² for each head.",
        unit="positions",
        source="ours; not stated by arXiv 2505.16333",
        gt=3,
    )

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Whole windows with all their logits, for the slopes."""
        found = super().reading(model, longest)
        return found._replace(rows=self.batch_size * found.new)


class Options(evaluation.Options):
    """What is drawn: the alignment of heads, their importance, or what Dex makes of them."""

    shown: Literal["alignment", "importance", "change"] = setting(
        "alignment",
        meaning="Heat maps of alignment, curves of sorted importance, or a point for each head "
        "that Dex changed",
    )
