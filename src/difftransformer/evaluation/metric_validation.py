"""Checks of the value that an evaluation's ``measure`` returned, before it is stored."""

from difftransformer.errors import ConfigError, nearest
from difftransformer.evaluation.context import EvalResult
from difftransformer.provenance.result import PerItemScores


def as_eval_result(returned: object, kind: str) -> EvalResult:
    """Return the value that an evaluation's ``measure`` returned as an `EvalResult`.

    ``kind`` is the name of the evaluation, for messages. Metrics without per-item scores get none.

    Raises:
        ConfigError: The value is neither a dict of metrics nor an `EvalResult`.
    """
    metrics, per_item = returned if isinstance(returned, EvalResult) else (returned, {})
    location = f"evaluations/{kind}: measure returns"
    if not isinstance(metrics, dict):
        raise ConfigError(
            f"{location} a {type(metrics).__name__} in place of metrics: return a dict of numbers "
            "by name, or EvalResult(metrics, per_item)"
        )
    for name, value in metrics.items():
        if not _is_number(value):
            raise ConfigError(
                f"{location} a {type(value).__name__} as {name}: make it one number, or None where "
                "it is undefined"
            )
    if not isinstance(per_item, dict) or not all(
        isinstance(scores, PerItemScores) for scores in per_item.values()
    ):
        raise ConfigError(
            f"{location} a {type(per_item).__name__} as per_item: return a dict of "
            "`per_item_scores` by name of their metrics"
        )
    plain = int | float | None
    return EvalResult(
        {
            name: value if isinstance(value, plain) else float(value)
            for name, value in metrics.items()
        },
        per_item,
    )


def validate_item_sums(result: EvalResult, kind: str) -> None:
    """Check that the per-item scores of every metric add up to the metric's value.

    Raises:
        ConfigError: Scores do not add up to their metric, or belong to a metric that is missing.
    """
    metrics, location = result.metrics, f"evaluations/{kind}: measure returns"
    for name, scores in result.per_item.items():
        if name not in metrics:
            raise ConfigError(
                f"{location} per_item of {name}, which is no metric{nearest(name, metrics)}"
            )
        value = metrics[name]
        if value is not None and not scores.sums_to(value):
            raise ConfigError(
                f"{location} {name} = {value:g}, but its {scores.item_type} give "
                f"{scores.total():g}: make the metric the sum of their values by that of their "
                "weights (their mean without weights), or leave it out of per_item"
            )


def _is_number(value: object) -> bool:
    """Return whether a value is None or one number, as a tensor of one element is."""
    if isinstance(value, str | bytes):
        return False
    try:
        return value is None or isinstance(float(value), float)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        return False
