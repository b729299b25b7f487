"""A learning-rate sweep as columns, one a rate, and as a panel with a line an architecture."""

import math
from typing import NamedTuple

from difftransformer.config.artifact_slices import RowSlice, SweepRow
from difftransformer.evaluations.learning_rate.settings import Options
from difftransformer.reporting.cells import (
    UNDEFINED,
    CellKey,
    PublishedValues,
    mean_cell,
    seed_values,
)
from difftransformer.reporting.charts import HOLLOW_STYLE, Point, draw_lines, mean_points
from difftransformer.reporting.collect import get_metric
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import (
    SOFT,
    Axes,
    Figure,
    RowStyle,
    label_axes,
    legend_below,
    legend_handle,
    row_styles,
)
from difftransformer.reporting.number_format import format_learning_rate
from difftransformer.reporting.panels import set_log_ticks, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import make_section

BEST, CHOSEN = "★", "†"
_BEST, _CHOSEN = RowStyle(SOFT, (), "*"), RowStyle(SOFT, (), "o")


class Outcome(NamedTuple):
    """What the sweep says about one architecture."""

    row: RowSlice
    best: SweepRow | None
    chosen: SweepRow | None
    cells: dict[float, Cell]


def section(context: SectionContext[Options]) -> Section:
    """Make the section: rows are architectures, columns are rates."""
    found = outcomes(context)
    columns = [
        Column(id=_column(context, one), header=f"lr {format_learning_rate(one)}")
        for one in context.learning_rates
    ]
    columns.append(Column(id="best_learning_rate", header=f"{BEST} best"))
    columns.append(Column(id="chosen_learning_rate", header=f"{CHOSEN} in use"))
    notes = [
        f"{_named(context).capitalize()}, {context.options.better} is better; "
        f"{BEST} best mean, {CHOSEN} the rate of the tables' runs."
    ]
    return make_section(
        context, columns, [cell for one in found for cell in _row_cells(one)], notes
    )


def outcomes(context: SectionContext[Options]) -> list[Outcome]:
    """Mean metric by rate of each row, and its best rate if one is known: of equals the lowest.

    Raises:
        UserError: a result of the sweep is missing.
    """
    found = []
    for row in context.rows:
        entries = context.sweep_rows(row)
        cells = {entry.learning_rate: _cell(context, entry) for entry in entries}
        sign = 1 if context.options.better == "lower" else -1
        best = min(entries, key=lambda entry: _rank(cells[entry.learning_rate], sign))
        chosen = next((entry for entry in entries if entry.chosen), None)
        known = best if cells[best.learning_rate].value is not None else None
        found.append(Outcome(row, known, chosen, cells))
    return found


def _column(context: SectionContext[Options], learning_rate: float) -> str:
    """Column of a rate, such as ``validation_loss@4e-3``."""
    return f"{context.options.metric}@{format_learning_rate(learning_rate)}"


def _named(context: SectionContext[Options]) -> str:
    """The metric in words."""
    return context.options.metric.replace("_", " ")


def _cell(context: SectionContext[Options], entry: SweepRow) -> Cell:
    trained = [context.results.training(entry.run_id, seed) for seed in context.seeds]
    values = [(result, get_metric(result, context.options.metric)) for result in trained]
    place = CellKey(entry.run, _column(context, entry.learning_rate))
    decimals = context.options.decimals
    return mean_cell(place, seed_values(values, decimals), decimals, PublishedValues(None))


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
                text=nothing if entry is None else format_learning_rate(entry.learning_rate),
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


def figure(context: SectionContext[Options]) -> Figure:
    """Draw one panel a section; the legend stands once where all panels show the same rows."""
    parts = context.sibling_contexts
    figure, (places,) = subplot_grid(1, len(parts), (5.5 * len(parts), 4.6))
    look = row_styles({row.label: row.look for part in parts for row in part.rows})
    for axes, part in zip(places, parts, strict=True):
        _panel(axes, part, look)
    signs = [legend_handle(label, one, line=1.6, mark=3.5) for label, one in look.items()]
    signs += [
        legend_handle("best mean", _BEST, mark=10),
        legend_handle("in use", _CHOSEN, mark=10, hollow=True),
    ]
    legend_below(figure, signs, ncols=2 * len(parts))
    return figure


def _panel(axes: Axes, context: SectionContext[Options], look: dict[str, RowStyle]) -> None:
    for one in outcomes(context):
        label, own = one.row.label, look[one.row.label]
        points = [
            Point(label, swept, value)
            for swept, cell in one.cells.items()
            for value in cell.by_seed().values()
        ]
        draw_lines(axes, points, look, marks=3.5)
        partial = {swept for swept, cell in one.cells.items() if cell.n < len(cell.seeds)}
        means = mean_points(points)
        draw_lines(
            axes, [p for p in means if p.x in partial], look, marks=3.5, lw=0, **HOLLOW_STYLE
        )
        for sign_of, entry, size, style in (
            (_CHOSEN, one.chosen, 13, {"mfc": "none", "mew": 1.4}),
            (_BEST, one.best, 11, {"mec": "white", "mew": 0.6, "zorder": 3}),
        ):
            at = [p for p in means if entry is not None and p.x == entry.learning_rate]
            marked = {label: own._replace(marker=sign_of.marker)}
            draw_lines(axes, at, marked, marks=size, lw=0, **style)
    set_log_ticks(
        axes, context.learning_rates, list(map(format_learning_rate, context.learning_rates))
    )
    better = f"{_named(context)} ({context.options.better} is better)"
    label_axes(axes, x="peak learning rate", y=better, title=context.title)
