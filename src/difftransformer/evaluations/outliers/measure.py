"""Activation outliers (DIFF paper, section 3.7 and table 5): largest and median magnitudes.

Shapes: B = windows in memory, T = seq_len, M = softmax maps of a layer.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from difftransformer.evaluation.context import EvalContext, Metrics, validation_inputs
from difftransformer.evaluations.outliers.magnitudes import MEDIAN_ERROR, Magnitudes
from difftransformer.evaluations.outliers.settings import (
    HISTOGRAMS,
    KINDS,
    RANKS,
    Suite,
    median_metric,
    top_metric,
)
from difftransformer.models.kernels.eager import logit_hook
from difftransformer.models.transformer import Layer
from difftransformer.provenance.atomic import write_text


def measure(suite: Suite, context: EvalContext) -> Metrics:
    """Largest values by rank and the median of both kinds, over the start of the validation split.

    Returns:
        {kind}_top{rank} and {kind}_median for each kind of `KINDS`, {kind}_values (how many were
        counted), median_error (largest relative error of a median), tokens. Beside them, in the
        details, a histogram of each kind.

    Raises:
        DataError: the validation split is missing or too short.
    """
    windows = validation_inputs(suite, context)
    found = {kind: Magnitudes(max(RANKS)) for kind in KINDS}
    tokens = 0
    with _watched(context.scorer.model, found):
        for batch in windows:
            context.scorer.hidden_states(batch)
            tokens += batch.numel()
    _write_histograms(context, found)
    return _metrics(found) | {"median_error": MEDIAN_ERROR, "tokens": tokens}


@contextmanager
def _watched(model: Any, found: dict[str, Magnitudes]) -> Iterator[None]:
    """Count the logits of every softmax and the output of every layer of ``model``."""

    def logits(scores: Tensor, allowed: Tensor) -> Tensor:
        found["attention_logits"].update(scores[allowed.expand_as(scores)])
        return scores

    def state(module: nn.Module, inputs: Any, output: Tensor) -> None:
        found["hidden_states"].update(output)

    layers = [module for module in model.modules() if isinstance(module, Layer)]
    with ExitStack() as watching:
        for layer in layers:
            watching.callback(layer.register_forward_hook(state).remove)
        watching.enter_context(logit_hook(logits, softmax_only=True))
        yield


def _metrics(found: dict[str, Magnitudes]) -> Metrics:
    metrics: Metrics = {}
    for kind, magnitudes in found.items():
        metrics |= {top_metric(kind, rank): magnitudes.largest(rank) for rank in RANKS}
        metrics[median_metric(kind)] = magnitudes.median()
        metrics[f"{kind}_values"] = magnitudes.number
    return metrics


def _write_histograms(context: EvalContext, found: dict[str, Magnitudes]) -> None:
    shown = {}
    for kind, magnitudes in found.items():
        edges, counts = magnitudes.histogram()
        shown[kind] = {"edges": edges, "counts": counts}
    write_text(context.details / HISTOGRAMS, json.dumps(shown) + "\n")
