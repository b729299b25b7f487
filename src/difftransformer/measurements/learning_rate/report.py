"""A learning-rate sweep as columns, one a rate, and as a panel with a line an architecture."""

import math
from typing import TYPE_CHECKING, NamedTuple

from difftransformer.config.artifact_slices import RowSlice, SweepRow
from difftransformer.measurements.learning_rate.settings import Options
from difftransformer.reporting.cells import Paper, Place, mean_cell, seed_values
from difftransformer.reporting.collect import metric
from difftransformer.reporting.curves import Curve, draw, mark
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import SOFT, Look, legend_below, looks, printable, tidy
from difftransformer.reporting.numbers import plain, rate
from difftransformer.reporting.panels import log_ticks, panels
from difftransformer.reporting.sections import section_of
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BEST, CHOSEN = "★", "†"


class Outcome(NamedTuple):
    """What the sweep says about one architecture."""

    row: RowSlice
    best: SweepRow
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
        f"{BEST} best mean, {CHOSEN} the rate of the tables' runs.",
        *(_judgement(view, one) for one in found),
    ]
    return section_of(view, columns, [cell for one in found for cell in _row_cells(one)], notes)


def outcomes(view: View[Options]) -> list[Outcome]:
    """Mean metric by rate of each row, and the best rate: of equal ones the lowest.

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
        found.append(Outcome(row, best, chosen, cells))
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
        marks = BEST if one == outcome.best.learning_rate else ""
        if outcome.chosen is not None and one == outcome.chosen.learning_rate:
            marks += CHOSEN
        text = f"{cell.text} {marks}" if marks else cell.text
        cells.append(cell.model_copy(update={"text": text}))
    for column, entry in (("best", outcome.best), ("chosen", outcome.chosen)):
        cells.append(
            Cell(
                row=outcome.row.run,
                column=f"{column}_learning_rate",
                text="not swept" if entry is None else rate(entry.learning_rate),
                value=None if entry is None else entry.learning_rate,
                n=outcome.cells[outcome.best.learning_rate].n,
                seeds=[
                    seed.model_copy(update={"value": None, "text": ""})
                    for swept in outcome.cells.values()
                    for seed in swept.seeds
                ],
            )
        )
    return cells


def _judgement(view: View[Options], outcome: Outcome) -> str:
    """Say whether the configuration uses the best rate, and whether the grid was wide enough."""
    best, chosen, label = outcome.best, outcome.chosen, outcome.row.label
    swept, reached = sorted(outcome.cells), outcome.cells[best.learning_rate].value
    at_best = rate(best.learning_rate)
    if reached is None:
        return f"{label}: {_named(view)} is undefined at every rate of the sweep."
    if chosen is None:
        text = f"{label}: the rate in use is none of those swept; the best of them is {at_best}"
    elif chosen.learning_rate == best.learning_rate:
        text = f"{label}: the rate in use, {at_best}, is the best of the sweep"
    else:
        value = outcome.cells[chosen.learning_rate].value
        ours = "undefined" if value is None else plain(value, view.options.decimals)
        text = (
            f"{label}: the rate in use, {rate(chosen.learning_rate)} ({ours}), is not the best of "
            f"the sweep, {at_best} ({plain(reached, view.options.decimals)})"
        )
    if len(swept) > 1 and best.learning_rate in (swept[0], swept[-1]):
        text += "; the best lies at the edge of the grid, so a wider one may find a better"
    return text + "."


def figure(view: View[Options]) -> "Figure":
    """Draw one panel a section; the legend stands once where all panels show the same rows."""
    from matplotlib.lines import Line2D

    parts = view.sections
    figure, (places,) = panels(1, len(parts), (5.5 * len(parts), 4.6))
    wanted = {row.label: row.look for part in parts for row in part.rows}
    look = looks(wanted)
    for axes, part in zip(places, parts, strict=True):
        _panel(axes, part, look)
    named = {
        label: handle
        for axes in places
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    star = Line2D([], [], color=SOFT, marker="*", ls="", ms=10, label="best mean")
    ring = Line2D([], [], color=SOFT, marker="o", mfc="none", ls="", ms=10, label="in use")
    handles = [*(named[printable(label)] for label in wanted), star, ring]
    legend_below(figure, handles=handles, ncols=2 * len(parts))
    return figure


def _panel(axes: "Axes", view: View[Options], look: dict[str, Look]) -> None:
    for one in outcomes(view):
        _line(axes, one, look[one.row.label])
    log_ticks(axes, view.rates, list(map(rate, view.rates)))
    better = f"{_named(view)} ({view.options.better} is better)"
    tidy(axes, x="peak learning rate", y=better, title=view.title)


def _line(axes: "Axes", one: Outcome, look: Look) -> None:
    measured = {swept: cell.by_seed() for swept, cell in one.cells.items() if cell.n}
    curve = Curve(list(measured), [list(values.values()) for values in measured.values()])
    draw(axes, curve, look, printable(one.row.label))
    partial = [swept for swept, cell in one.cells.items() if cell.n < len(cell.seeds)]
    mark(axes, curve, look._replace(marker="o"), partial, size=3.5)
    points = dict(zip(curve.x, curve.y, strict=True))
    if one.chosen is not None and one.chosen.learning_rate in points:
        at = one.chosen.learning_rate
        axes.plot([at], [points[at]], "o", mfc="none", mec=look.colour, ms=13, mew=1.4)
    if one.best.learning_rate in points:
        at = one.best.learning_rate
        axes.plot([at], [points[at]], "*", color=look.colour, ms=11, mec="white", mew=0.6)
