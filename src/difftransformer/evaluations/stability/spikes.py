"""How stable trainings were: spikes of the loss and of the gradient norm, and divergence."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.errors import DataError
from difftransformer.evaluations.stability.settings import THRESHOLD, WINDOW, Options
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import Results, metric
from difftransformer.reporting.view import View

SPIKES = {"loss_spikes": "loss", "gradient_spikes": "grad_norm"}
"""Kinds that are spikes, with the columns of a history that have them."""
KINDS = {
    "loss_spikes": "Loss spikes",
    "gradient_spikes": "Gradient-norm spikes",
    "diverged": "Diverged seeds",
    "final_loss": "Validation loss at the end",
}
"""What is told of every training, in the words of headings."""
_ROBUST = 1.4826  # a normal distribution's standard deviation over its median absolute deviation


class Stability(NamedTuple):
    """One training.

    Attributes:
        result: Its result file.
        values: By kind. Spikes: share in % of its judged steps, where every step that was planned
            after a divergence counts as one; diverged: 1 or 0; the loss is None after a divergence.
    """

    result: Result
    values: dict[str, float | None]


ByRate = dict[float, list[Stability]]
"""Learning rate -> one training a seed, ascending."""


def stability_of(results: Results, run: str, seeds: Sequence[int]) -> list[Stability]:
    """Judge the trainings of a run, one a seed.

    Raises:
        UserError: a result or a history is missing, or the training did not record divergence.
        DataError: a history lacks steps, so that spikes could be missed.
    """
    return [_judge(results, run, seed) for seed in seeds]


def by_rate(view: View[Options], row: RowSlice) -> ByRate:
    """Judge the trainings of a swept row."""
    return {
        one.learning_rate: stability_of(view.results, one.run_id, view.seeds)
        for one in view.swept(row)
    }


def spikes(values: Sequence[float], window: int, threshold: float) -> list[int]:
    """Return the places of the spikes in ``values``, ascending.

    A value is a spike if it exceeds the median of the ``window`` values before it by more than
    ``threshold`` of their robust standard deviations (1.4826 median absolute deviations). The first
    ``window`` values have too few before them and are not judged. Both statistics shrug off up to
    half of the window, so a spike does not hide the next one.

    Args:
        values: One value a step, without gaps.
        window: Steps before a value that it is compared with.
        threshold: Robust standard deviations.
    """
    assert window > 0, window
    found = []
    for place in range(window, len(values)):
        before = values[place - window : place]
        middle = median(before)
        spread = _ROBUST * median(abs(value - middle) for value in before)
        if values[place] > middle + threshold * spread:
            found.append(place)
    return found


def _judge(results: Results, run: str, seed: int) -> Stability:
    result, window = results.training(run, seed), WINDOW
    diverged, planned = metric(result, "diverged"), metric(result, "planned_steps")
    assert diverged is not None and planned is not None, result.job_id
    if planned <= window:
        raise DataError(
            f"{result.job_id}: {planned:.0f} steps are no more than the window of {window} steps: "
            "train longer"
        )
    values: dict[str, float | None] = {}
    for kind, column in SPIKES.items():
        series = results.histories.series(run, seed, column)
        steps = len(series.steps)
        if series.steps != list(range(1, steps + 1)) or (not diverged and steps < planned):
            raise DataError(
                f"{result.job_id}: its history lacks steps, so spikes could be missed: set "
                "training.log_every to 1 and rerun the training"
            )
        found = spikes(series.values, window, THRESHOLD)
        lost = planned - max(steps, window)
        values[kind] = 100 * (len(found) + lost) / (planned - window)
    values |= {"diverged": diverged, "final_loss": metric(result, "validation_loss")}
    return Stability(result, values)
