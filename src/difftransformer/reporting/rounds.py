"""Numbers by round of one job of timings: cells, ratios, and what they were measured on.

Rounds stand where other cells have seeds.
"""

import math
from collections.abc import Sequence
from statistics import median, quantiles
from typing import TypeVar

from difftransformer.config.timing import TimingConfig
from difftransformer.errors import UserError
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import Paper, Place
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import Cell, SeedValue
from difftransformer.reporting.numbers import count, plain

DECIMALS = 3
C = TypeVar("C", bound=TimingConfig)


def timed_with(results: Results, kind: str, settings: type[C]) -> tuple[Result, C]:
    """Return the one result of a job of timings and its settings.

    Raises:
        UserError: There is no such result, or it was made with other settings.
    """
    result = results.timings(kind)
    try:
        return result, settings.model_validate(result.settings["config"])
    except (KeyError, ValueError):
        raise UserError(f"{result.job_id}: has no settings of {kind}: rerun") from None


def quotients(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ratios round by round."""
    return [one / two for one, two in zip(ours, theirs, strict=True)]


def geometric_means(ratios: Sequence[Sequence[float]]) -> list[float]:
    """Geometric mean over several lists of ratios, round by round."""
    return [math.exp(math.fsum(map(math.log, one)) / len(one)) for one in zip(*ratios, strict=True)]


def quartile(values: Sequence[float], which: int) -> float:
    """First, second or third quartile."""
    return quantiles(values, n=4, method="inclusive")[which - 1]


def speed_cell(place: Place, speeds: Sequence[float], job_id: str, paper: Paper) -> Cell:
    """Median and quartiles of tokens per second."""
    published = paper.number(*place)
    text = f"{count(median(speeds))} ({count(quartile(speeds, 1))} to {count(quartile(speeds, 3))})"
    return Cell(
        row=place.row,
        column=place.column,
        text=text,
        value=median(speeds),
        n=len(speeds),
        paper_value=published,
        paper_text=None if published is None else plain(published, 0),
        seeds=_rounds(speeds, 0, job_id),
    )


def ratio_cell(place: Place, ratios: Sequence[float], job_id: str) -> Cell:
    """Median and quartiles; a verdict takes its interval, of the mean, from the rounds."""
    low, high = (plain(quartile(ratios, which), DECIMALS) for which in (1, 3))
    return Cell(
        row=place.row,
        column=place.column,
        text=f"{plain(median(ratios), DECIMALS)} ({low} to {high})",
        value=median(ratios),
        n=len(ratios),
        seeds=_rounds(ratios, DECIMALS, job_id),
    )


def one_cell(place: Place, value: float, text: str, job_id: str) -> Cell:
    """A number that was found once."""
    return Cell(
        row=place.row,
        column=place.column,
        text=text,
        value=value,
        n=1,
        seeds=[SeedValue(seed=0, value=value, text=text, job_ids=[job_id])],
    )


def machine_note(result: Result, config: TimingConfig) -> str:
    """Say where the timings were taken, in one sentence."""
    found = result.provenance
    machine = found.hardware.get("gpu") or found.hardware["cpu"]
    return (
        f"Measured on {machine} with {found.threads} thread{'s' * (found.threads > 1)}, "
        f"{config.precision}; it says nothing of other machines."
    )


def rounds_note(config: TimingConfig, turns: str) -> str:
    """Say how rounds were made and read; ``turns`` are what has one in each."""
    clock = "" if config.clock == "wall" else " Seconds are those of CPU time."
    return (
        f"median (quartiles) of {config.repeats} rounds after {config.warmup} untimed ones, in "
        f"each of which every {turns} has one turn; by the backend that is fastest for the row "
        f"({', '.join(config.backends)}). Rounds are repeats in one process, not independent "
        f"runs.{clock}"
    )


def _rounds(values: Sequence[float], decimals: int, job_id: str) -> list[SeedValue]:
    return [
        SeedValue(seed=number, value=value, text=plain(value, decimals), job_ids=[job_id])
        for number, value in enumerate(values)
    ]
