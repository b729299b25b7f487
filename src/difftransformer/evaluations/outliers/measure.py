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
from difftransformer.evaluations.outliers.settings import HISTOGRAMS, KINDS, RANKS, Suite
from difftransformer.models.kernels.eager import logit_hook
from difftransformer.models.transformer import DecoderLayer
from difftransformer.provenance.atomic import write_text


def measure(suite: Suite, context: EvalContext) -> Metrics:
    """Return the largest values and the median of each kind of activation on validation text.

    Returns:
        For each kind of `KINDS`: {kind}_top{rank}, {kind}_median and {kind}_values (their number);
        median_error (maximum relative error of a median), tokens. A histogram of each kind is
        written to the details.

    Raises:
        DataError: The validation split is missing or too short.
    """
    windows = validation_inputs(suite, context)
    magnitudes = {kind: Magnitudes(max(RANKS)) for kind in KINDS}
    tokens = 0
    with _hooked(context.scorer.model, magnitudes):
        for batch in windows:
            context.scorer.hidden_states(batch)
            tokens += batch.numel()
    _write_histograms(context, magnitudes)
    return _metrics(magnitudes) | {"median_error": MEDIAN_ERROR, "tokens": tokens}


@contextmanager
def _hooked(model: Any, magnitudes: dict[str, Magnitudes]) -> Iterator[None]:
    """Context with hooks that add the logits of every softmax and the output of every layer."""

    def add_logits(scores: Tensor, allowed: Tensor) -> Tensor:
        magnitudes["attention_logits"].update(scores[allowed.expand_as(scores)])
        return scores

    def add_states(module: nn.Module, inputs: Any, output: Tensor) -> None:
        magnitudes["hidden_states"].update(output)

    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, DecoderLayer):
                stack.callback(module.register_forward_hook(add_states).remove)
        stack.enter_context(logit_hook(add_logits, softmax_only=True))
        yield


def _metrics(magnitudes: dict[str, Magnitudes]) -> Metrics:
    metrics: Metrics = {}
    for kind, summary in magnitudes.items():
        metrics |= {f"{kind}_top{rank}": summary.largest(rank) for rank in RANKS}
        metrics[f"{kind}_median"] = summary.median()
        metrics[f"{kind}_values"] = summary.number
    return metrics


def _write_histograms(context: EvalContext, magnitudes: dict[str, Magnitudes]) -> None:
    histograms = {}
    for kind, summary in magnitudes.items():
        edges, counts = summary.histogram()
        histograms[kind] = {"edges": edges, "counts": counts}
    write_text(context.details / HISTOGRAMS, json.dumps(histograms) + "\n")
