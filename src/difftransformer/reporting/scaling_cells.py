"""Cells of fitted numbers: over all seeds, by seed, with a bootstrap interval."""

import math
from collections.abc import Callable, Sequence

from difftransformer.config.artifact_slices import FamilySlice
from difftransformer.reporting.cells import Place
from difftransformer.reporting.document import Cell, SeedValue
from difftransformer.reporting.numbers import count, plain
from difftransformer.reporting.scaling_curves import Curves, Line, Sample
from difftransformer.reporting.scaling_fit import Reading, bootstrap_interval

BEYOND = "beyond the measured range"
NEVER = "none, the curve does not fall"
RATIO_DECIMALS = 2

Statistic = Callable[[Sample], float]
Write = Callable[[float], str]


def estimate_cell(
    place: Place, statistic: Statistic, lines: Sequence[Line], draws: int, write: Write
) -> Cell:
    """Make the cell of a number that is fitted to the points of lines.

    Args:
        place: Its row and column.
        statistic: The number for a sample of seeds; infinite beyond what was measured, NaN where
            there is none.
        lines: All lines it depends on: their jobs stand behind it.
        draws: Number of bootstrap samples.
        write: The number in words.
    """
    seeds = [
        seed.model_copy(update={"value": _finite(value), "text": _say(value, write)})
        for index, seed in enumerate(_behind(lines))
        for value in [statistic((index,))]
    ]
    value = statistic(range(len(seeds)))
    interval = bootstrap_interval(statistic, len(seeds), draws)
    text = _say(value, write)
    if math.isfinite(value) and len(seeds) > 1:
        text += f" ({write(interval[0])} to {write(interval[1])})" if interval else " (no interval)"
    return Cell(
        row=place.row,
        column=place.column,
        text=text,
        value=_finite(value),
        ci_low=interval[0] if interval else None,
        ci_high=interval[1] if interval else None,
        n=sum(seed.value is not None for seed in seeds),
        seeds=seeds,
    )


def equal_loss_cells(
    row: str,
    prefix: str,
    x: float,
    family: FamilySlice,
    lines: Sequence[Line],
    curves: Curves,
    draws: int,
) -> list[Cell]:
    """Where the row compared with has the loss of this one at x: its x, the ratio, and a flag.

    The flag is 1 where there is no ratio, because the equal loss was not measured.
    """
    involved = [line for line in lines if line.family.run in (family.run, family.against)]

    def reading(sample: Sample) -> Reading:
        return curves.reading(family, x, sample)

    def equal(sample: Sample) -> float:
        return _or_limit(reading(sample), reading(sample).equal_x, above=math.inf)

    def ratio(sample: Sample) -> float:
        return _or_limit(reading(sample), reading(sample).ratio, above=-math.inf)

    def write_ratio(value: float) -> str:
        return plain(value, RATIO_DECIMALS)

    beyond = reading(curves.everyone).beyond is not None
    return [
        estimate_cell(Place(row, f"{prefix}_x"), equal, involved, draws, count),
        estimate_cell(Place(row, f"{prefix}_ratio"), ratio, involved, draws, write_ratio),
        Cell(
            row=row,
            column=f"{prefix}_beyond",
            text="yes" if beyond else "no",
            value=float(beyond),
            n=len(curves.everyone),
            seeds=_behind(involved),
        ),
    ]


def _or_limit(reading: Reading, value: float | None, above: float) -> float:
    """Return the value, or what takes its place in a ranking where the reading has none."""
    if value is not None:
        return value
    return {"above": above, "below": -above, "never": math.nan}[str(reading.beyond)]


def _behind(lines: Sequence[Line]) -> list[SeedValue]:
    """Every seed with the jobs of all points, and no value of its own."""
    points = [point for line in lines for point in line.points]
    return [
        SeedValue(
            seed=together[0].seed,
            value=None,
            text="",
            job_ids=list(dict.fromkeys(job for one in together for job in one.job_ids)),
        )
        for together in zip(*(point.seeds for point in points), strict=True)
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _say(value: float, write: Write) -> str:
    if math.isnan(value):
        return NEVER
    return BEYOND if math.isinf(value) else write(value)
