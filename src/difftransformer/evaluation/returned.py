"""What an evaluation returned, held to what it has to be before it becomes a result."""

from difftransformer.errors import ConfigError, nearest
from difftransformer.evaluation.subject import Measured
from difftransformer.provenance.result import Units


def as_measured(found: object, kind: str) -> Measured:
    """Return what ``measure`` of a kind returned, with the units that there are.

    Raises:
        ConfigError: It is neither metrics nor `Measured`.
    """
    metrics, units = found if isinstance(found, Measured) else (found, {})
    place = f"evaluations/{kind}: measure returns"
    if not isinstance(metrics, dict):
        raise ConfigError(
            f"{place} a {type(metrics).__name__} where metrics should be: return a dict of numbers "
            "by their names, or Measured(metrics, units)"
        )
    for name, value in metrics.items():
        if not _is_number(value):
            raise ConfigError(
                f"{place} a {type(value).__name__} as {name}: make it one number, or None where it "
                "is undefined"
            )
    if not isinstance(units, dict) or not all(isinstance(one, Units) for one in units.values()):
        raise ConfigError(
            f"{place} a {type(units).__name__} of other things where units should be: return "
            "a dict of what `means` gives, by the names of metrics"
        )
    plain = int | float | None
    return Measured(
        {name: one if isinstance(one, plain) else float(one) for name, one in metrics.items()},
        units,
    )


def require_units(found: Measured, kind: str) -> None:
    """Hold units to the metrics that they are of."""
    metrics, place = found.metrics, f"evaluations/{kind}: measure returns"
    for name, one in found.units.items():
        if name not in metrics:
            raise ConfigError(
                f"{place} units of {name}, which is none of its metrics{nearest(name, metrics)}"
            )
        value = metrics[name]
        if value is not None and not one.adds_up(value):
            raise ConfigError(
                f"{place} {value:g} as {name}, and {one.unit} of it that make {one.total():g}: let "
                "the metric be the sum of their values by that of their weights (their mean, where "
                "none are given), or leave its units out"
            )


def _is_number(value: object) -> bool:
    """Whether it becomes one number in a result, as a tensor of one element does, or is None."""
    if isinstance(value, str | bytes):
        return False
    try:
        return value is None or isinstance(float(value), float)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        return False
