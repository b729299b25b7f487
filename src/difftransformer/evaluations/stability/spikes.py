"""Stability of training runs: spikes of the loss and of the gradient norm, and divergence."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.errors import DataError
from difftransformer.evaluations.stability.settings import THRESHOLD, WINDOW, Options
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import Results, get_metric
from difftransformer.reporting.section_context import SectionContext

SPIKES = {"loss_spikes": "loss", "gradient_spikes": "grad_norm"}
"""Metric of spikes -> column of the training history in which they are counted."""
METRICS = {
    "loss_spikes": "Loss spikes",
    "gradient_spikes": "Gradient-norm spikes",
    "diverged": "Diverged seeds",
    "final_loss": "Final validation loss",
}
"""Metric of a training run's stability -> column header."""
_ROBUST = 1.4826  # a normal distribution's standard deviation over its median absolute deviation


class Stability(NamedTuple):
    """Stability metrics of one training run.

    Attributes:
        result: Result of the training run.
        values: Value of each metric. loss_spikes, gradient_spikes: spikes in % of the steps after
            the first ``WINDOW``, where every planned step after a divergence counts as a spike.
            diverged: 1 or 0. final_loss: None for a diverged run.
    """

    result: Result
    values: dict[str, float | None]


ByRate = dict[float, list[Stability]]
"""Learning rate (ascending) -> stability of the training run of each seed."""


def stability_of(results: Results, run: str, seeds: Sequence[int]) -> list[Stability]:
    """Return the stability metrics of a run, one entry per seed.

    Raises:
        UserError: A result or a history is missing, or the training did not record divergence.
        DataError: A history lacks steps, so that spikes could be missed.
    """
    return [_stability(results, run, seed) for seed in seeds]


def by_rate(context: SectionContext[Options], row: ResolvedRow) -> ByRate:
    """Return the stability metrics of a row at each learning rate of its sweep, by seed."""
    return {
        entry.learning_rate: stability_of(context.results, entry.run_id, context.seeds)
        for entry in context.sweep_rows(row)
    }


def spikes(values: Sequence[float], window: int, threshold: float) -> list[int]:
    """Return the indices of the spikes in ``values``, ascending.

    A value is a spike if it exceeds the median of the ``window`` values before it by more than
    ``threshold`` of their robust standard deviations (1.4826 median absolute deviations). The first
    ``window`` values are not tested. Both statistics tolerate outliers in up to half of the window,
    so a spike does not hide the next one.
    """
    assert window > 0, window
    indices = []
    for index in range(window, len(values)):
        before = values[index - window : index]
        center = median(before)
        spread = _ROBUST * median(abs(value - center) for value in before)
        if values[index] > center + threshold * spread:
            indices.append(index)
    return indices


def _stability(results: Results, run: str, seed: int) -> Stability:
    result, window = results.training(run, seed), WINDOW
    diverged, planned = get_metric(result, "diverged"), get_metric(result, "planned_steps")
    assert diverged is not None and planned is not None, result.job_id
    if planned <= window:
        raise DataError(
            f"{result.job_id}: {planned:.0f} steps, spikes need more than the window of {window}: "
            "train longer"
        )
    values: dict[str, float | None] = {}
    for name, column in SPIKES.items():
        series = results.histories.series(run, seed, column)
        steps = len(series.steps)
        if series.steps != list(range(1, steps + 1)) or (not diverged and steps < planned):
            raise DataError(
                f"{result.job_id}: its history lacks steps, so spikes could be missed: set "
                "training.log_every to 1 and rerun the training"
            )
        after_divergence = planned - max(steps, window)
        count = len(spikes(series.values, window, THRESHOLD)) + after_divergence
        values[name] = 100 * count / (planned - window)
    values |= {"diverged": diverged, "final_loss": get_metric(result, "validation_loss")}
    return Stability(result, values)
