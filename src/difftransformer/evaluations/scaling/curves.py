"""Loss by model size or training tokens: measured and published points, fitted curves, cells."""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

from difftransformer.config.papers import PaperTable
from difftransformer.config.resolved_artifacts import ResolvedGridRow
from difftransformer.errors import DataError
from difftransformer.evaluations.scaling.power_law import (
    EqualLoss,
    PowerLaw,
    find_equal_loss,
    fit_power_law,
)
from difftransformer.evaluations.scaling.settings import POINTS, Options
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import CellKey, PublishedValues, seed_values
from difftransformer.reporting.charts import require_same_steps
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Cell, SeedValue
from difftransformer.reporting.number_format import format_count, format_number
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.statistics import Interval, paired_contrast

DECIMALS = 3
COUNTS = {"one_embedding": "one embedding", "non_embedding": "no embedding", "total": "all"}
"""Way to count a model's parameters -> words for it in a column header."""
SIZE = "one_embedding"
"""Count of parameters that is a model's size on the axis of a figure. Tying the embeddings does not
change this count, and the sizes in arXiv 2410.05258, table 10, count one embedding matrix."""
OUT_OF_RANGE = "beyond the measured range"
NEVER = "none, the curve does not fall"
RATIO_DECIMALS = 2

Sample = Sequence[int]
"""Indices of the seeds over which losses are averaged: a single seed, or all."""
Statistic = Callable[[Sample], float]
Write = Callable[[float], str]


class Point(NamedTuple):
    """Losses by seed at one point of a curve: for one model size, or after some training tokens."""

    row: str
    run: str
    x: float
    seeds: list[SeedValue]

    def mean(self, sample: Sample) -> float:
        """Return the mean loss of the point over a sample of seeds."""
        values = [value for seed in sample if (value := self.seeds[seed].value) is not None]
        assert len(values) == len(sample), self.row
        return sum(values) / len(values)


class Line(NamedTuple):
    """The points of one curve, in the order of ascending x."""

    grid_row: ResolvedGridRow
    points: list[Point]


class Curves:
    """The fitted power laws of a section, for any sample of seeds; each is fitted only once.

    Raises:
        UserError: A result or a history is missing, or a loss is undefined.
        DataError: A history is too short for a curve, or curves have different points.
    """

    def __init__(self, context: SectionContext[Options]) -> None:
        self.options, self.lines = context.options, _lines(context)
        self.all_seeds: Sample = range(len(context.seeds))
        self._points = {line.grid_row.run: line.points for line in self.lines}
        self.curve = cache(self._curve)

    def _curve(self, run: str, sample: Sample) -> PowerLaw:
        """Return the curve through mean losses over a sample of seeds."""
        points = self._points[run]
        losses = [point.mean(sample) for point in points]
        offset = self.options.has_offset(len(points))
        return fit_power_law([point.x for point in points], losses, offset=offset)

    def equal_loss(self, grid_row: ResolvedGridRow, x: float, sample: Sample) -> EqualLoss:
        """Return the point where the baseline's curve has the loss of a row's curve at x."""
        assert grid_row.baseline is not None
        curve, baseline = self.curve(grid_row.run, sample), self.curve(grid_row.baseline, sample)
        return find_equal_loss(curve, baseline, x)

    def compare_x(self, run: str) -> float:
        """Return the x at which a run's curve is compared with its baseline's.

        It is ``compare_at`` times the curve's largest x, but at least its smallest x.
        """
        points = self._points[run]
        return max(self.options.compare_at * points[-1].x, points[0].x)


def parameters(result: Result, counted: str) -> float:
    """Return the number of parameters of a result's model.

    ``counted`` is the way to count them, a key of `COUNTS`.
    """
    if counted == "total":
        return require_metric(result, "parameters")
    size = require_metric(result, "non_embedding_parameters")
    if counted == "one_embedding":
        model = result.settings["model"]
        size += model["vocab_size"] * model["d_model"]
    return size


def published_fits(
    context: SectionContext[Options], paper: PaperTable
) -> tuple[dict[str, PowerLaw], dict[str, tuple[ResolvedGridRow, EqualLoss]]]:
    """Return power laws fitted to the published points, and their comparisons at equal loss.

    Returns:
        Two dicts. The first maps a run to the curve of its published points, fitted with an offset
        if as many of our points would be. The second maps each published row with a value ``x``
        to the compared grid row, and the point where the baseline's curve has that row's loss at x.
    """
    curves = {
        run: fit_power_law(series.x, series.y, offset=context.options.has_offset(len(series.x)))
        for run, series in paper.series.items()
    }
    pairs = [
        pair for pair in context.section.grid_rows if pair.run in curves and pair.baseline in curves
    ]
    equal_losses = {
        row: (pair, find_equal_loss(curves[pair.run], curves[str(pair.baseline)], x))
        for pair in pairs[:1]
        for row in paper.rows
        if (x := PublishedValues(paper).number(row, "x")) is not None
    }
    return curves, equal_losses


def estimate_cell(
    key: CellKey, statistic: Statistic, curves: Curves, runs: Sequence[str], write: Write
) -> Cell:
    """Return the table cell of a statistic of fitted curves, with its interval over seeds.

    Args:
        key: Row and column of the cell.
        statistic: Function from a sample of seeds to the value. It returns infinity for a value
            outside the measured range, NaN if there is none.
        curves: The fitted curves.
        runs: Runs whose training and evaluation jobs the cell lists.
        write: Function that formats the value.
    """
    seeds = [
        seed.model_copy(update={"value": _finite(value), "text": _text(value, write)})
        for index, seed in enumerate(_seed_jobs(curves, runs))
        for value in [statistic((index,))]
    ]
    value = statistic(range(len(seeds)))
    low, high = _interval(seeds) if math.isfinite(value) else (None, None)
    text = _text(value, write)
    if low is not None and high is not None:
        text += f" ({write(low)} to {write(high)})"
    elif math.isfinite(value) and len(seeds) > 1:
        text += " (no interval)"
    return Cell(
        row=key.row,
        column=key.column,
        text=text,
        value=_finite(value),
        ci_low=low,
        ci_high=high,
        n=sum(seed.value is not None for seed in seeds),
        seeds=seeds,
    )


def equal_loss_cells(
    row: str, prefix: str, x: float, grid_row: ResolvedGridRow, curves: Curves
) -> list[Cell]:
    """Return the table cells of equal loss at x: the baseline's x, the ratio, and a flag.

    The ratio is x over the baseline's x. The flag is 1 if there is no ratio, since the baseline
    reaches the loss outside the measured range or never. Column ids start with ``prefix``.
    """
    runs = [grid_row.run, str(grid_row.baseline)]

    def equal_x(sample: Sample) -> float:
        equal = curves.equal_loss(grid_row, x, sample)
        if equal.equal_x is None:
            return math.nan if equal.out_of_range == "never" else math.inf
        return equal.equal_x

    def ratio(sample: Sample) -> float:
        equal = equal_x(sample)
        return x / equal if math.isfinite(equal) else equal

    write_ratio = partial(format_number, decimals=RATIO_DECIMALS)
    out_of_range = not math.isfinite(equal_x(curves.all_seeds))
    return [
        estimate_cell(CellKey(row, f"{prefix}_x"), equal_x, curves, runs, format_count),
        estimate_cell(CellKey(row, f"{prefix}_ratio"), ratio, curves, runs, write_ratio),
        Cell(
            row=row,
            column=f"{prefix}_out_of_range",
            text="yes" if out_of_range else "no",
            value=float(out_of_range),
            n=len(curves.all_seeds),
            seeds=_seed_jobs(curves, runs),
        ),
    ]


def _lines(context: SectionContext[Options]) -> list[Line]:
    by_size = context.options.by == "size"
    points = _by_size if by_size else _by_tokens
    lines = [Line(grid_row, points(context, grid_row)) for grid_row in context.section.grid_rows]
    first = lines[0]
    for line in lines[1:]:
        if len(line.points) != len(first.points):
            raise DataError(
                f"{line.grid_row.run} has {len(line.points)} points and {first.grid_row.run} "
                f"{len(first.points)}: rerun the run with the older settings"
            )
        if not by_size and [p.x for p in line.points] != [p.x for p in first.points]:
            raise DataError(
                f"{line.grid_row.run} and {first.grid_row.run} were validated after different "
                "numbers of tokens: give them the same budget and validate_every"
            )
    return lines


def _by_size(context: SectionContext[Options], grid_row: ResolvedGridRow) -> list[Point]:
    points = []
    for row in (row for row in context.rows if row.run in grid_row.members):
        size = parameters(context.train_results(row)[0], SIZE)
        losses = [(result, require_metric(result, "loss")) for result in context.eval_results(row)]
        seeds = seed_values(losses, DECIMALS, terms={"loss": 1.0})
        points.append(Point(row.run, row.run, size, seeds))
    return sorted(points, key=lambda point: point.x)


def _by_tokens(context: SectionContext[Options], grid_row: ResolvedGridRow) -> list[Point]:
    """Return validation losses along the grid_row's run with the largest budget."""
    run, histories = grid_row.members[-1], context.results.histories
    trained = [context.results.training(run, seed) for seed in context.seeds]
    series = require_same_steps(
        run, [histories.series(run, n, "validation_loss") for n in context.seeds]
    )
    tokens = series[0].tokens
    if not tokens:
        raise DataError(f"history of {run}: no validation loss, it diverged before the first")
    indices = sorted({series[0].nearest(part + 1, POINTS) for part in range(POINTS)})
    if len(indices) < 2:
        raise DataError(
            f"history of {run}: a curve needs at least 2 validations, got {len(tokens)}: lower "
            "validate_every in its recipe"
        )
    points = []
    for index in indices:
        losses = [
            (result, curve.values[index]) for result, curve in zip(trained, series, strict=True)
        ]
        name, x = f"{run}@{tokens[index]}", float(tokens[index])
        points.append(Point(name, run, x, seed_values(losses, DECIMALS)))
    return points


def _seed_jobs(curves: Curves, runs: Sequence[str]) -> list[SeedValue]:
    """Return every seed with the jobs of all points, without a value."""
    points = [point for line in curves.lines if line.grid_row.run in runs for point in line.points]
    return [
        SeedValue(
            seed=of_seed[0].seed,
            value=None,
            text="",
            job_ids=list(dict.fromkeys(job for value in of_seed for job in value.job_ids)),
        )
        for of_seed in zip(*(point.seeds for point in points), strict=True)
    ]


def _interval(seeds: Sequence[SeedValue]) -> Interval:
    """Return the interval of the mean of the seeds' values, as in verdicts.

    None if a seed has no value: it may be out of range on either side.
    """
    values = [seed.value for seed in seeds if seed.value is not None]
    return (
        paired_contrast(values).interval() if values and len(values) == len(seeds) else (None, None)
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _text(value: float, write: Write) -> str:
    if math.isnan(value):
        return NEVER
    return OUT_OF_RANGE if math.isinf(value) else write(value)
