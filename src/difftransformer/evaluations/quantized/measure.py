"""Another suite on one model, as it is and with numbers rounded to fewer and fewer bits.

DIFF paper, section 3.7 and figure 8, for attention logits; weights and the key/value cache are
ours.
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
from difftransformer.evaluations.quantized.rounding import ROUNDED
from difftransformer.evaluations.quantized.settings import Suite, score_name
from difftransformer.provenance.atomic import write_text

logger = logging.getLogger(__name__)

UNQUANTIzED = "unquantized"
METRICS = "metrics.json"


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Scores by what is rounded and to how many bits.

    Args:
        suite: What is rounded, and the suite that is repeated; `suite.score` names its metric.
        context: The model, with eager attention. ``details`` gets a folder for each repetition,
            with all metrics of it and what the repeated suite leaves there.

    Returns:
        score_unquantized; score_{what}_b{bits} for each of `ROUNDED` and `suite.bits`; chance, the
        score of guessing, where `suite.chance` names it. Scores are known by what the repeated
        suite knows them by.

    Raises:
        ConfigError: The repeated suite has no metric of that name, or does not fit the model.
        UserError: What the repeated suite raises.
    """
    exact = _repeat(suite, context, UNQUANTIzED, nullcontext())
    metrics: Metrics = {score_name(): _value(suite, "score", suite.score, exact.metrics)}
    repeated = {score_name(): exact}
    if suite.chance is not None:
        metrics["chance"] = _value(suite, "chance", suite.chance, exact.metrics)
    for what, rounding in ROUNDED.items():
        for bits in suite.bits:
            rounded = rounding(context.scorer.model, bits, suite.granularity.attention_logits)
            found = _repeat(suite, context, f"{what}_b{bits}", rounded)
            metrics[score_name(what, bits)] = found.metrics[suite.score]
            repeated[score_name(what, bits)] = found
    per_item = {
        name: found.per_item[suite.score]
        for name, found in repeated.items()
        if suite.score in found.per_item
    }
    return EvalResult(metrics, per_item)


def _repeat(
    suite: Suite, context: EvalContext, name: str, rounded: AbstractContextManager[None]
) -> EvalResult:
    """Measure the repeated suite once, with its details and its state in folders of their own."""
    details = context.details / name
    details.mkdir(parents=True, exist_ok=True)
    place = replace(context, details=details, state=context.state / name)
    evaluation = import_module(module_of(suite.asked.kind, "measure"))
    with rounded:
        found = evaluation.measure(suite.asked, place)
    measured = as_eval_result(found, suite.asked.kind)
    write_text(details / METRICS, json.dumps(measured.metrics, indent=1) + "\n")
    logger.info("%s: %s %s", name, suite.score, measured.metrics.get(suite.score))
    return measured


def _value(suite: Suite, key: str, name: str, metrics: Metrics) -> int | float | None:
    if name not in metrics:
        raise ConfigError(
            f"evaluations.yaml: {key}: suite '{suite.measured}' has no metric "
            f"'{name}'{nearest(name, metrics)}"
        )
    return metrics[name]
