"""Another suite on one model, as it is and with numbers rounded to fewer and fewer bits.

DIFF paper, section 3.7 and figure 8, for attention logits; weights and the key/value cache are
ours.
"""

import json
import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib import import_module
from typing import Any

from difftransformer.analysis.affine_quantisation import rounded_cache, rounded_weights
from difftransformer.analysis.quantisation import rounded_logits
from difftransformer.config.evaluation import suite_module
from difftransformer.config.suites.quantised import Quantised, Quantity
from difftransformer.config.validation import nearest
from difftransformer.errors import ConfigError
from difftransformer.evaluation.subject import Metrics, Subject
from difftransformer.provenance.atomic import write_text

logger = logging.getLogger(__name__)

UNQUANTISED = "unquantised"
METRICS = "metrics.json"


def measure(suite: Quantised, subject: Subject) -> Metrics:
    """Scores by what is rounded and to how many bits.

    Args:
        suite: What is rounded, and the suite that is repeated; `suite.score` names its metric.
        subject: The model, with eager attention. ``details`` gets a folder for each repetition,
            with all metrics of it and what the repeated suite leaves there.

    Returns:
        score_unquantised; score_{what}_b{bits} for each of `suite.what` and `suite.bits`; chance,
        the score of guessing, where `suite.chance` names it.

    Raises:
        ConfigError: The repeated suite has no metric of that name, or does not fit the model.
        UserError: What the repeated suite raises.
    """
    found = {UNQUANTISED: _repeat(suite, subject, UNQUANTISED, nullcontext())}
    score = _value(suite, "score", suite.score, found[UNQUANTISED])
    metrics: Metrics = {f"score_{UNQUANTISED}": score}
    if suite.chance is not None:
        metrics["chance"] = _value(suite, "chance", suite.chance, found[UNQUANTISED])
    for what in suite.what:
        for bits in suite.bits:
            name = f"{what}_b{bits}"
            rounded = _rounded(subject.scorer.model, what, bits, suite)
            metrics[f"score_{name}"] = _repeat(suite, subject, name, rounded)[suite.score]
    return metrics


def _repeat(
    suite: Quantised, subject: Subject, name: str, rounded: AbstractContextManager[None]
) -> Metrics:
    """Measure the repeated suite once, with its details and its state in folders of their own."""
    details = subject.details / name
    details.mkdir(parents=True, exist_ok=True)
    place = replace(subject, details=details, state=subject.state / name)
    repeated = suite.repeated
    with rounded:
        metrics: Metrics = import_module(suite_module(repeated.kind)).measure(repeated, place)
    write_text(details / METRICS, json.dumps(metrics, indent=1) + "\n")
    logger.info("%s: %s %s", name, suite.score, metrics.get(suite.score))
    return metrics


def _rounded(
    model: Any, what: Quantity, bits: int, suite: Quantised
) -> AbstractContextManager[None]:
    grouped = suite.granularity
    match what:
        case "attention_logits":
            return rounded_logits(model, bits, grouped.attention_logits)
        case "weights":
            return rounded_weights(model, bits, grouped.weights)
        case "kv_cache":
            return rounded_cache(model, bits, grouped.kv_cache)


def _value(suite: Quantised, key: str, name: str, metrics: Metrics) -> int | float | None:
    if name not in metrics:
        raise ConfigError(
            f"evaluations.yaml: {key}: suite '{suite.measured}' has no metric "
            f"'{name}'{nearest(name, metrics)}"
        )
    return metrics[name]
