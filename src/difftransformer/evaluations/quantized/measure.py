"""Scores of another suite on one model, unquantized and quantized to decreasing numbers of bits.

DIFF paper, section 3.7 and figure 8, for attention logits; weights and the KV cache are ours.
"""

import json
import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib import import_module

from difftransformer.config.evaluations import module_of
from difftransformer.errors import ConfigError, nearest
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics
from difftransformer.evaluation.metric_validation import as_eval_result
from difftransformer.evaluations.quantized.fake_quantization import QUANTIZERS
from difftransformer.evaluations.quantized.settings import Suite, score_name
from difftransformer.provenance.atomic import write_text

logger = logging.getLogger(__name__)

UNQUANTIZED = "unquantized"
METRICS = "metrics.json"


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Return the scores of the repeated suite, by quantized quantity and number of bits.

    Args:
        suite: Settings of the bits, the repeated suite, and its metric that is the score.
        context: The model, with eager attention. Its ``details`` gets a folder for each repetition,
            with all its metrics and the details of the repeated suite.

    Returns:
        score_unquantized; score_{quantity}_b{bits} for each of `QUANTIZERS` and `suite.bits`;
        chance, the score of guessing, if `suite.chance` names its metric. Scores have the
        per-item scores of the repeated suite.

    Raises:
        ConfigError: The repeated suite has no metric of that name, or does not fit the model.
        UserError: Any error of the repeated suite.
    """
    exact = _repeat(suite, context, UNQUANTIZED, nullcontext())
    metrics: Metrics = {score_name(): _value(suite, "score", suite.score, exact.metrics)}
    repeated = {score_name(): exact}
    if suite.chance is not None:
        metrics["chance"] = _value(suite, "chance", suite.chance, exact.metrics)
    for quantity, quantizer in QUANTIZERS.items():
        for bits in suite.bits:
            quantized = quantizer(context.scorer.model, bits, suite.granularity.attention_logits)
            measured = _repeat(suite, context, f"{quantity}_b{bits}", quantized)
            metrics[score_name(quantity, bits)] = measured.metrics[suite.score]
            repeated[score_name(quantity, bits)] = measured
    per_item = {
        name: measured.per_item[suite.score]
        for name, measured in repeated.items()
        if suite.score in measured.per_item
    }
    return EvalResult(metrics, per_item)


def _repeat(
    suite: Suite, context: EvalContext, name: str, quantized: AbstractContextManager[None]
) -> EvalResult:
    """Evaluate the repeated suite once, with its own folders for details and state."""
    details = context.details / name
    details.mkdir(parents=True, exist_ok=True)
    inner_context = replace(context, details=details, state=context.state / name)
    evaluation = import_module(module_of(suite.base_suite.kind, "measure"))
    with quantized:
        returned = evaluation.measure(suite.base_suite, inner_context)
    result = as_eval_result(returned, suite.base_suite.kind)
    write_text(details / METRICS, json.dumps(result.metrics, indent=1) + "\n")
    logger.info("%s: %s %s", name, suite.score, result.metrics.get(suite.score))
    return result


def _value(suite: Suite, key: str, name: str, metrics: Metrics) -> int | float | None:
    if name not in metrics:
        raise ConfigError(
            f"evaluations.yaml: {key}: suite '{suite.repeated_suite}' has no metric "
            f"'{name}'{nearest(name, metrics)}"
        )
    return metrics[name]
