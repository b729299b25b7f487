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
from difftransformer.evaluation.returned import as_measured
from difftransformer.evaluation.subject import Measured, Metrics, Subject
from difftransformer.evaluations.quantized.rounding import ROUNDED
from difftransformer.evaluations.quantized.settings import Suite, score_name
from difftransformer.provenance.atomic import write_text

logger = logging.getLogger(__name__)

UNQUANTIzED = "unquantized"
METRICS = "metrics.json"


def measure(suite: Suite, subject: Subject) -> Measured:
    """Scores by what is rounded and to how many bits.

    Args:
        suite: What is rounded, and the suite that is repeated; `suite.score` names its metric.
        subject: The model, with eager attention. ``details`` gets a folder for each repetition,
            with all metrics of it and what the repeated suite leaves there.

    Returns:
        score_unquantized; score_{what}_b{bits} for each of `ROUNDED` and `suite.bits`; chance, the
        score of guessing, where `suite.chance` names it. Scores are known by what the repeated
        suite knows them by.

    Raises:
        ConfigError: The repeated suite has no metric of that name, or does not fit the model.
        UserError: What the repeated suite raises.
    """
    exact = _repeat(suite, subject, UNQUANTIzED, nullcontext())
    metrics: Metrics = {score_name(): _value(suite, "score", suite.score, exact.metrics)}
    repeated = {score_name(): exact}
    if suite.chance is not None:
        metrics["chance"] = _value(suite, "chance", suite.chance, exact.metrics)
    for what, rounding in ROUNDED.items():
        for bits in suite.bits:
            rounded = rounding(subject.scorer.model, bits, suite.granularity.attention_logits)
            found = _repeat(suite, subject, f"{what}_b{bits}", rounded)
            metrics[score_name(what, bits)] = found.metrics[suite.score]
            repeated[score_name(what, bits)] = found
    units = {
        name: found.units[suite.score]
        for name, found in repeated.items()
        if suite.score in found.units
    }
    return Measured(metrics, units)


def _repeat(
    suite: Suite, subject: Subject, name: str, rounded: AbstractContextManager[None]
) -> Measured:
    """Measure the repeated suite once, with its details and its state in folders of their own."""
    details = subject.details / name
    details.mkdir(parents=True, exist_ok=True)
    place = replace(subject, details=details, state=subject.state / name)
    evaluation = import_module(module_of(suite.asked.kind, "measure"))
    with rounded:
        found = evaluation.measure(suite.asked, place)
    measured = as_measured(found, suite.asked.kind)
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
