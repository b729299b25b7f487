"""How stable trainings were: spikes of the loss and of the gradient norm, and divergence."""

from collections.abc import Sequence
from typing import NamedTuple

from difftransformer.analysis.spikes import spikes
from difftransformer.config.spikes import SpikesConfig
from difftransformer.errors import DataError
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import Results, metric

LOSS, GRADIENT = "loss", "grad_norm"
"""Columns of a history that can spike."""


class Stability(NamedTuple):
    """One training.

    Attributes:
        result: Its result file.
        spikes: Column -> share in % of its judged steps that are spikes, where every step that was
            planned after a divergence counts as one.
        diverged: 1 or 0.
        loss: Validation loss at the end; None after a divergence.
    """

    result: Result
    spikes: dict[str, float]
    diverged: float
    loss: float | None


def stability_of(
    results: Results, run: str, seeds: Sequence[int], config: SpikesConfig
) -> list[Stability]:
    """Judge the trainings of a run, one a seed.

    Raises:
        UserError: a result or a history is missing, or the training did not record divergence.
        DataError: a history lacks steps, so that spikes could be missed.
    """
    return [_judge(results, run, seed, config) for seed in seeds]


def _judge(results: Results, run: str, seed: int, config: SpikesConfig) -> Stability:
    result = results.training(run, seed)
    diverged, planned = metric(result, "diverged"), metric(result, "planned_steps")
    assert diverged is not None and planned is not None, result.job_id
    if planned <= config.window:
        raise DataError(
            f"{result.job_id}: {planned:.0f} steps are no more than the window of "
            f"{config.window} steps: lower spikes.window in artifacts.yaml, or train longer"
        )
    shares = {}
    for column in (LOSS, GRADIENT):
        series = results.histories.series(run, seed, column)
        steps = len(series.steps)
        if series.steps != list(range(1, steps + 1)) or (not diverged and steps < planned):
            raise DataError(
                f"{result.job_id}: its history lacks steps, so spikes could be missed: set "
                "training.log_every to 1 and rerun the training"
            )
        found = spikes(series.values, config.window, config.threshold)
        lost = planned - max(steps, config.window)
        shares[column] = 100 * (len(found) + lost) / (planned - config.window)
    return Stability(result, shares, diverged, metric(result, "validation_loss"))
