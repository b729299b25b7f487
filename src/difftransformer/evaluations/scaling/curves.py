"""Loss by size or by training tokens: points, ours and published, curves, cells of the fits."""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

from difftransformer.config.artifact_slices import FamilySlice
from difftransformer.config.papers import PaperTable
from difftransformer.errors import DataError
from difftransformer.evaluations.scaling.power_law import (
    PowerLaw,
    Reading,
    fit_power_law,
    read_equal_loss,
)
from difftransformer.evaluations.scaling.settings import POINTS, Options
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import Paper, Place, seed_values
from difftransformer.reporting.charts import same_steps
from difftransformer.reporting.collect import defined
from difftransformer.reporting.document import Cell, SeedValue
from difftransformer.reporting.numbers import count, plain
from difftransformer.reporting.statistics import Interval, contrast
from difftransformer.reporting.view import View

DECIMALS = 3
COUNTS = {"one_embedding": "one embedding", "non_embedding": "no embedding", "total": "all"}
"""Ways to count parameters, values of the option `parameters`, in the words of headers."""
BEYOND = "beyond the measured range"
NEVER = "none, the curve does not fall"
RATIO_DECIMALS = 2

Sample = Sequence[int]
"""Indices of seeds: of one, or of all."""
Statistic = Callable[[Sample], float]
Write = Callable[[float], str]


class Point(NamedTuple):
    """A loss by seed at a size, or at a number of training tokens."""

    row: str
    run: str
    x: float
    seeds: list[SeedValue]

    def mean(self, sample: Sample) -> float:
        """Mean loss of a sample of seeds."""
        values = [value for seed in sample if (value := self.seeds[seed].value) is not None]
        assert len(values) == len(sample), self.row
        return sum(values) / len(values)


class Line(NamedTuple):
    """The points of one row of the artifact, from the smallest x to the largest."""

    family: FamilySlice
    points: list[Point]


class Curves:
    """Curves of all rows of a section, fitted to any sample of the seeds; each is fitted once.

    Raises:
        UserError: a result or a history is missing, or a loss is undefined.
        DataError: a history is too short for a curve, or rows differ in their points.
    """

    def __init__(self, view: View[Options]) -> None:
        self.options, self.lines = view.options, _measured(view)
        self.everyone: Sample = range(len(view.seeds))
        self._points = {line.family.run: line.points for line in self.lines}
        self.curve = cache(self._curve)

    def _curve(self, run: str, sample: Sample) -> PowerLaw:
        """Return the curve through a row's mean losses over a sample of seeds."""
        points = self._points[run]
        losses = [point.mean(sample) for point in points]
        offset = self.options.has_offset(len(points))
        return fit_power_law([point.x for point in points], losses, offset=offset)

    def reading(self, family: FamilySlice, x: float, sample: Sample) -> Reading:
        """Return where the row compared with has the loss that this row's curve has at x."""
        assert family.against is not None
        ours, theirs = self.curve(family.run, sample), self.curve(family.against, sample)
        return read_equal_loss(ours, theirs, x)

    def read_at(self, run: str) -> float:
        """Return where a row is read: at a share of its largest x, or at its smallest if larger."""
        points = self._points[run]
        return max(self.options.read_at * points[-1].x, points[0].x)


def parameters(result: Result, counted: str) -> float:
    """Size of a model: ``counted`` is a value of the option `parameters`."""
    if counted == "total":
        return defined(result, "parameters")
    size = defined(result, "non_embedding_parameters")
    if counted == "one_embedding":
        model = result.settings["model"]
        size += model["vocab_size"] * model["d_model"]
    return size


def published_fits(
    view: View[Options], paper: PaperTable
) -> tuple[dict[str, PowerLaw], dict[str, tuple[FamilySlice, Reading]]]:
    """Fit the published points as ours, and read the curves where the paper reads its own.

    Returns:
        Row -> curve of its published series, with an offset where our points would get one; and
        published row with an ``x`` -> whose curve is read there, and the reading.
    """
    curves = {
        run: fit_power_law(one.x, one.y, offset=view.options.has_offset(len(one.x)))
        for run, one in paper.series.items()
    }
    pairs = [one for one in view.part.families if one.run in curves and one.against in curves]
    readings = {
        row: (pair, read_equal_loss(curves[pair.run], curves[str(pair.against)], x))
        for pair in pairs[:1]
        for row in paper.rows
        if (x := Paper(paper).number(row, "x")) is not None
    }
    return curves, readings


def estimate_cell(
    place: Place, statistic: Statistic, curves: Curves, runs: Sequence[str], write: Write
) -> Cell:
    """Make the cell of a number that is fitted to the points of rows.

    Args:
        place: Its row and column.
        statistic: The number for a sample of seeds; infinite beyond what was measured, NaN where
            there is none.
        curves: What is fitted.
        runs: All rows it depends on: the jobs of their points stand behind it.
        write: The number in words.
    """
    seeds = [
        seed.model_copy(update={"value": _finite(value), "text": _say(value, write)})
        for index, seed in enumerate(_behind(curves, runs))
        for value in [statistic((index,))]
    ]
    value = statistic(range(len(seeds)))
    low, high = _interval(seeds) if math.isfinite(value) else (None, None)
    text = _say(value, write)
    if low is not None and high is not None:
        text += f" ({write(low)} to {write(high)})"
    elif math.isfinite(value) and len(seeds) > 1:
        text += " (no interval)"
    return Cell(
        row=place.row,
        column=place.column,
        text=text,
        value=_finite(value),
        ci_low=low,
        ci_high=high,
        n=sum(seed.value is not None for seed in seeds),
        seeds=seeds,
    )


def equal_loss_cells(
    row: str, prefix: str, x: float, family: FamilySlice, curves: Curves
) -> list[Cell]:
    """Where the row compared with has the loss of this one at x: its x, the ratio, and a flag.

    The flag is 1 where there is no ratio, because the equal loss was not measured.
    """
    runs = [family.run, str(family.against)]

    def read(field: str) -> Statistic:
        """Read a number; infinite beyond what was measured, NaN where there is none."""

        def statistic(sample: Sample) -> float:
            reading = curves.reading(family, x, sample)
            found: float | None = getattr(reading, field)
            if found is None:
                return math.nan if reading.beyond == "never" else math.inf
            return found

        return statistic

    equal, ratio = read("equal_x"), read("ratio")
    write_ratio = partial(plain, decimals=RATIO_DECIMALS)
    beyond = curves.reading(family, x, curves.everyone).beyond is not None
    return [
        estimate_cell(Place(row, f"{prefix}_x"), equal, curves, runs, count),
        estimate_cell(Place(row, f"{prefix}_ratio"), ratio, curves, runs, write_ratio),
        Cell(
            row=row,
            column=f"{prefix}_beyond",
            text="yes" if beyond else "no",
            value=float(beyond),
            n=len(curves.everyone),
            seeds=_behind(curves, runs),
        ),
    ]


def _measured(view: View[Options]) -> list[Line]:
    by_size = view.options.by == "size"
    points = _by_size if by_size else _by_tokens
    lines = [Line(family, points(view, family)) for family in view.part.families]
    first = lines[0]
    for line in lines[1:]:
        if len(line.points) != len(first.points):
            raise DataError(
                f"{line.family.run} has {len(line.points)} points and {first.family.run} "
                f"{len(first.points)}: rerun the one with the older settings"
            )
        if not by_size and [p.x for p in line.points] != [p.x for p in first.points]:
            raise DataError(
                f"{line.family.run} and {first.family.run} were validated after different "
                "numbers of tokens: give them the same budget and validate_every"
            )
    return lines


def _by_size(view: View[Options], family: FamilySlice) -> list[Point]:
    points = []
    for row in (row for row in view.rows if row.run in family.members):
        size = parameters(view.trained(row)[0], view.options.parameters)
        losses = [(result, defined(result, "loss")) for result in view.evaluated(row)]
        seeds = seed_values(losses, DECIMALS, terms={"loss": 1.0})
        points.append(Point(row.run, row.run, size, seeds))
    return sorted(points, key=lambda point: point.x)


def _by_tokens(view: View[Options], family: FamilySlice) -> list[Point]:
    """Read validation losses along the one run of the family with the largest budget."""
    run, histories = family.members[-1], view.results.histories
    trained = [view.results.training(run, seed) for seed in view.seeds]
    series = same_steps(run, [histories.series(run, n, "validation_loss") for n in view.seeds])
    tokens = series[0].tokens
    if not tokens:
        raise DataError(f"history of {run}: no validation loss: it diverged before the first one")
    places = sorted({series[0].nearest(part + 1, POINTS) for part in range(POINTS)})
    if len(places) < 2:
        raise DataError(
            f"history of {run}: {len(tokens)} validation is no curve: set validate_every in its "
            "setup so that there are several"
        )
    points = []
    for place in places:
        losses = [(one, curve.values[place]) for one, curve in zip(trained, series, strict=True)]
        name, x = f"{run}@{tokens[place]}", float(tokens[place])
        points.append(Point(name, run, x, seed_values(losses, DECIMALS)))
    return points


def _behind(curves: Curves, runs: Sequence[str]) -> list[SeedValue]:
    """Every seed with the jobs of all points, and no value of its own."""
    points = [point for line in curves.lines if line.family.run in runs for point in line.points]
    return [
        SeedValue(
            seed=together[0].seed,
            value=None,
            text="",
            job_ids=list(dict.fromkeys(job for one in together for job in one.job_ids)),
        )
        for together in zip(*(point.seeds for point in points), strict=True)
    ]


def _interval(seeds: Sequence[SeedValue]) -> Interval:
    """That of the mean of single seeds' numbers, as a verdict has it.

    None where a seed has no number: it may lack it for being large, or small.
    """
    known = [seed.value for seed in seeds if seed.value is not None]
    return contrast(known).interval() if known and len(known) == len(seeds) else (None, None)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _say(value: float, write: Write) -> str:
    if math.isnan(value):
        return NEVER
    return BEYOND if math.isinf(value) else write(value)
