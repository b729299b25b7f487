"""A learning-rate sweep as columns, one a rate, and as a panel with a line an architecture."""

import math
from typing import NamedTuple

from difftransformer.config.artifact_slices import RowSlice, SweepRow
from difftransformer.evaluations.learning_rate.settings import Options
from difftransformer.reporting.cells import UNDEFINED, Paper, Place, mean_cell, seed_values
from difftransformer.reporting.charts import HOLLOW, Point, lines, mean_points
from difftransformer.reporting.collect import metric
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import (
    SOFT,
    Axes,
    Figure,
    Look,
    legend_below,
    looks,
    sign,
    tidy,
)
from difftransformer.reporting.numbers import rate
from difftransformer.reporting.panels import log_ticks, panels
from difftransformer.reporting.sections import section_of
from difftransformer.reporting.view import View

BEST, CHOSEN = "★", "†"
_BEST, _CHOSEN = Look(SOFT, (), "*"), Look(SOFT, (), "o")


class Outcome(NamedTuple):
    """What the sweep says about one architecture."""

    row: RowSlice
    best: SweepRow | None
    chosen: SweepRow | None
    cells: dict[float, Cell]


def section(view: View[Options]) -> Section:
    """Make the section: rows are architectures, columns are rates."""
    found = outcomes(view)
    columns = [Column(id=_column(view, one), header=f"lr {rate(one)}") for one in view.rates]
    columns.append(Column(id="best_learning_rate", header=f"{BEST} best"))
    columns.append(Column(id="chosen_learning_rate", header=f"{CHOSEN} in use"))
    notes = [
        f"{_named(view).capitalize()}, {view.options.better} is better; "
        f"{BEST} best mean, {CHOSEN} the rate of the tables' runs."
    ]
    return section_of(view, columns, [cell for one in found for cell in _row_cells(one)], notes)


def outcomes(view: View[Options]) -> list[Outcome]:
    """Mean metric by rate of each row, and its best rate if one is known: of equals the lowest.

    Raises:
        UserError: a result of the sweep is missing.
    """
    found = []
    for row in view.rows:
        entries = view.swept(row)
        cells = {entry.learning_rate: _cell(view, entry) for entry in entries}
        sign = 1 if view.options.better == "lower" else -1
        best = min(entries, key=lambda entry: _rank(cells[entry.learning_rate], sign))
        chosen = next((entry for entry in entries if entry.chosen), None)
        known = best if cells[best.learning_rate].value is not None else None
        found.append(Outcome(row, known, chosen, cells))
    return found


def _column(view: View[Options], learning_rate: float) -> str:
    """Column of a rate, such as ``validation_loss@4e-3``."""
    return f"{view.options.metric}@{rate(learning_rate)}"


def _named(view: View[Options]) -> str:
    """The metric in words."""
    return view.options.metric.replace("_", " ")


def _cell(view: View[Options], entry: SweepRow) -> Cell:
    trained = [view.results.training(entry.run_id, seed) for seed in view.seeds]
    values = [(result, metric(result, view.options.metric)) for result in trained]
    place = Place(entry.run, _column(view, entry.learning_rate))
    decimals = view.options.decimals
    return mean_cell(place, seed_values(values, decimals), decimals, Paper(None))


def _rank(cell: Cell, sign: int) -> float:
    """A rate at which a seed has no value ranks last: its mean would be that of the survivors."""
    if cell.value is None or any(seed.value is None for seed in cell.seeds):
        return math.inf
    return sign * cell.value


def _row_cells(outcome: Outcome) -> list[Cell]:
    cells = []
    for one, cell in outcome.cells.items():
        signs = ((BEST, outcome.best), (CHOSEN, outcome.chosen))
        marks = "".join(sign for sign, entry in signs if entry and entry.learning_rate == one)
        cells.append(cell.model_copy(update={"text": f"{cell.text} {marks}".rstrip()}))
    best = outcome.best and outcome.cells[outcome.best.learning_rate]
    for column, entry, nothing in (
        ("best", outcome.best, UNDEFINED), ("chosen", outcome.chosen, "not swept"),
    ):  # fmt: skip
        cells.append(
            Cell(
                row=outcome.row.run,
                column=f"{column}_learning_rate",
                text=nothing if entry is None else rate(entry.learning_rate),
                value=None if entry is None else entry.learning_rate,
                n=best.n if best else 0,
                seeds=[
                    seed.model_copy(update={"value": None, "text": ""})
                    for swept in outcome.cells.values()
                    for seed in swept.seeds
                ],
            )
        )
    return cells


def figure(view: View[Options]) -> Figure:
    """Draw one panel a section; the legend stands once where all panels show the same rows."""
    parts = view.sections
    figure, (places,) = panels(1, len(parts), (5.5 * len(parts), 4.6))
    look = looks({row.label: row.look for part in parts for row in part.rows})
    for axes, part in zip(places, parts, strict=True):
        _panel(axes, part, look)
    signs = [sign(label, one, line=1.6, mark=3.5) for label, one in look.items()]
    signs += [sign("best mean", _BEST, mark=10), sign("in use", _CHOSEN, mark=10, hollow=True)]
    legend_below(figure, signs, ncols=2 * len(parts))
    return figure


def _panel(axes: Axes, view: View[Options], look: dict[str, Look]) -> None:
    for one in outcomes(view):
        label, own = one.row.label, look[one.row.label]
        points = [
            Point(label, swept, value)
            for swept, cell in one.cells.items()
            for value in cell.by_seed().values()
        ]
        lines(axes, points, look, marks=3.5)
        partial = {swept for swept, cell in one.cells.items() if cell.n < len(cell.seeds)}
        means = mean_points(points)
        lines(axes, [p for p in means if p.x in partial], look, marks=3.5, lw=0, **HOLLOW)
        for sign_of, entry, size, style in (
            (_CHOSEN, one.chosen, 13, {"mfc": "none", "mew": 1.4}),
            (_BEST, one.best, 11, {"mec": "white", "mew": 0.6, "zorder": 3}),
        ):
            at = [p for p in means if entry is not None and p.x == entry.learning_rate]
            marked = {label: own._replace(marker=sign_of.marker)}
            lines(axes, at, marked, marks=size, lw=0, **style)
    log_ticks(axes, view.rates, list(map(rate, view.rates)))
    better = f"{_named(view)} ({view.options.better} is better)"
    tidy(axes, x="peak learning rate", y=better, title=view.title)
