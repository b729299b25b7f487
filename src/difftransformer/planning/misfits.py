"""What a suite cannot ask of a model, where settings alone show it."""

from typing import Any

from difftransformer.config.data import DatasetConfig
from difftransformer.config.run import RunSlice
from difftransformer.config.suites.context_rms import ContextRms
from difftransformer.config.suites.hallucination import Hallucination
from difftransformer.config.suites.in_context_learning import InContextLearning
from difftransformer.config.suites.mathematics import Mathematics
from difftransformer.config.suites.needles import AttentionAllocation, Needles
from difftransformer.config.suites.nll_by_position import NllByPosition
from difftransformer.config.suites.outliers import Outliers
from difftransformer.config.suites.sinks import Sinks
from difftransformer.config.suites.validation_slices import ValidationSlices


def misfit_of(suite: Any, run: RunSlice, dataset: DatasetConfig) -> str | None:
    """Return what does not fit, in words; None where everything does."""
    longest, misfit = run.model.max_positions, None
    match suite:
        case Needles() | AttentionAllocation():
            misfit = suite.misfit(suite.most_needles, longest, dataset.recall)
        case InContextLearning():
            misfit = suite.misfit(longest, dataset.classification)
        case Hallucination():
            misfit = suite.misfit(longest, dataset.recall)
        case ValidationSlices() | Outliers() | ContextRms() | Sinks() if suite.seq_len > longest:
            misfit = f"seq_len {suite.seq_len} is longer than its max_positions {longest}"
        case Mathematics() if suite.max_new_tokens >= longest:
            misfit = (
                f"max_new_tokens {suite.max_new_tokens} leaves no room for a prompt in its "
                f"max_positions {longest}"
            )
        case NllByPosition() if suite.length > longest:
            misfit = f"length {suite.length} is longer than its max_positions {longest}"
    return misfit
