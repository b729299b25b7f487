"""Evaluation suites, and what an evaluation job gets of one."""

from typing import Annotated, Any

from pydantic import Field

from difftransformer.config.base import Settings, setting
from difftransformer.config.pretrained import PretrainedModel
from difftransformer.config.suites.context_rms import ContextRms
from difftransformer.config.suites.hallucination import Hallucination
from difftransformer.config.suites.in_context_learning import InContextLearning
from difftransformer.config.suites.language_understanding import LanguageUnderstanding
from difftransformer.config.suites.mathematics import Mathematics
from difftransformer.config.suites.needles import AttentionAllocation, Needles
from difftransformer.config.suites.nll_by_position import NllByPosition
from difftransformer.config.suites.outliers import Outliers
from difftransformer.config.suites.quantised import Quantised
from difftransformer.config.suites.recall import Recall
from difftransformer.config.suites.sinks import Sinks
from difftransformer.config.suites.validation_slices import ValidationSlices

PRETRAINED_KINDS = frozenset({"language_understanding"})
"""Kinds of suites that measure models from elsewhere too."""

BENCHMARK_KINDS = frozenset({"language_understanding", "mathematics", "hallucination"})
"""Kinds of suites whose items `benchmarks` of config.yaml may take from elsewhere."""

SuiteConfig = Annotated[
    ValidationSlices
    | Recall
    | LanguageUnderstanding
    | NllByPosition
    | Needles
    | AttentionAllocation
    | Outliers
    | Quantised
    | ContextRms
    | Sinks
    | Hallucination
    | InContextLearning
    | Mathematics,
    Field(discriminator="kind"),
]
"""Any suite; a kind's measurement is ``difftransformer.evaluation.<kind>.measure``."""


def suite_module(kind: str) -> str:
    """Name of the module with a kind's ``measure``: loaded by name, so fingerprints add it."""
    return f"difftransformer.evaluation.{kind}"


def measured_suite(config: Any) -> Any:
    """Return what a suite asks a model: its own settings, or those of the suite it repeats."""
    return config.repeated if isinstance(config, Quantised) else config


class EvaluationSlice(Settings):
    """One suite on one run at one scale, resolved: nothing in it refers to another entry."""

    scale: str = setting(meaning="Name of the scale the run was resolved at.")
    run: str = setting(meaning="Name of the run in runs.yaml.")
    suite: str = setting(meaning="Name of the suite in evaluations.yaml.")
    config: SuiteConfig = setting(meaning="What the suite measures.")
    pretrained: PretrainedModel | None = setting(
        None, meaning="The model where it comes from elsewhere; null: the run's own."
    )
