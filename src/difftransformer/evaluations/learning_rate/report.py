"""A learning-rate sweep as a table with a column per rate, and as a curve per architecture."""

import math
from typing import NamedTuple

from difftransformer.config.resolved_artifacts import ResolvedRow, SweepRow
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

BEST, IN_USE = "★", "†"
_BEST_STYLE, _IN_USE_STYLE = RowStyle(SOFT, (), "*"), RowStyle(SOFT, (), "o")


class SweepResult(NamedTuple):
    """One architecture's cells by learning rate, its best rate, and its rate in use."""

    row: ResolvedRow
    best: SweepRow | None
    chosen: SweepRow | None
    cells: dict[float, Cell]


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of a sweep: rows are architectures, columns are learning rates."""
    results = sweep_results(context)
    columns = [
        Column(id=_column(context, lr), header=f"lr {format_learning_rate(lr)}")
        for lr in context.learning_rates
    ]
    columns.append(Column(id="best_learning_rate", header=f"{BEST} best"))
    columns.append(Column(id="chosen_learning_rate", header=f"{IN_USE} in use"))
    notes = [
        f"{_metric_words(context).capitalize()}, {context.options.better} is better; "
        f"{BEST} best mean, {IN_USE} rate of the runs in the tables."
    ]
    return make_section(
        context, columns, [cell for result in results for cell in _row_cells(result)], notes
    )


def sweep_results(context: SectionContext[Options]) -> list[SweepResult]:
    """Return the mean metric by learning rate of each row, and the best rate of each row.

    Of equally good rates the lowest is best.

    Raises:
        UserError: A result of the sweep is missing.
    """
    results = []
    for row in context.rows:
        entries = context.sweep_rows(row)
        cells = {entry.learning_rate: _cell(context, entry) for entry in entries}
        sign = 1 if context.options.better == "lower" else -1
        best = min(entries, key=lambda entry: _rank(cells[entry.learning_rate], sign))
        chosen = next((entry for entry in entries if entry.chosen), None)
        best_entry = best if cells[best.learning_rate].value is not None else None
        results.append(SweepResult(row, best_entry, chosen, cells))
    return results


def _column(context: SectionContext[Options], learning_rate: float) -> str:
    """Return the column id of a rate, such as ``validation_loss@4e-3``."""
    return f"{context.options.metric}@{format_learning_rate(learning_rate)}"


def _metric_words(context: SectionContext[Options]) -> str:
    """Return the metric in words."""
    return context.options.metric.replace("_", " ")


def _cell(context: SectionContext[Options], entry: SweepRow) -> Cell:
    trained = [context.results.training(entry.run_id, seed) for seed in context.seeds]
    values = [(result, get_metric(result, context.options.metric)) for result in trained]
    key = CellKey(entry.run, _column(context, entry.learning_rate))
    decimals = context.options.decimals
    return mean_cell(key, seed_values(values, decimals), decimals, PublishedValues(None))


def _rank(cell: Cell, sign: int) -> float:
    """Return the sort key of a rate, last if any seed diverged."""
    if cell.value is None or any(seed.value is None for seed in cell.seeds):
        return math.inf
    return sign * cell.value


def _row_cells(result: SweepResult) -> list[Cell]:
    cells = []
    for learning_rate, cell in result.cells.items():
        marks_by_entry = ((BEST, result.best), (IN_USE, result.chosen))
        marks = "".join(
            mark for mark, entry in marks_by_entry if entry and entry.learning_rate == learning_rate
        )
        cells.append(cell.model_copy(update={"text": f"{cell.text} {marks}".rstrip()}))
    best = result.best and result.cells[result.best.learning_rate]
    for column, entry, missing in (
        ("best", result.best, UNDEFINED), ("chosen", result.chosen, "not swept"),
    ):  # fmt: skip
        cells.append(
            Cell(
                row=result.row.run,
                column=f"{column}_learning_rate",
                text=missing if entry is None else format_learning_rate(entry.learning_rate),
                value=None if entry is None else entry.learning_rate,
                n=best.n if best else 0,
                seeds=[
                    seed.model_copy(update={"value": None, "text": ""})
                    for swept in result.cells.values()
                    for seed in swept.seeds
                ],
            )
        )
    return cells


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the metric by learning rate, one panel per section with a shared legend."""
    parts = context.sibling_contexts
    figure, (panel_axes,) = subplot_grid(1, len(parts), (5.5 * len(parts), 4.6))
    styles = row_styles({row.label: row.color for part in parts for row in part.rows})
    for axes, part in zip(panel_axes, parts, strict=True):
        _panel(axes, part, styles)
    handles = [
        legend_handle(label, style, line_width=1.6, marker_size=3.5)
        for label, style in styles.items()
    ]
    handles += [
        legend_handle("best mean", _BEST_STYLE, marker_size=10),
        legend_handle("in use", _IN_USE_STYLE, marker_size=10, hollow=True),
    ]
    legend_below(figure, handles, ncols=2 * len(parts))
    return figure


def _panel(axes: Axes, context: SectionContext[Options], styles: dict[str, RowStyle]) -> None:
    for result in sweep_results(context):
        label, row_style = result.row.label, styles[result.row.label]
        points = [
            Point(label, swept, value)
            for swept, cell in result.cells.items()
            for value in cell.by_seed().values()
        ]
        draw_lines(axes, points, styles, marker_size=3.5)
        partial = {swept for swept, cell in result.cells.items() if cell.n < len(cell.seeds)}
        means = mean_points(points)
        draw_lines(
            axes,
            [p for p in means if p.x in partial],
            styles,
            marker_size=3.5,
            lw=0,
            **HOLLOW_STYLE,
        )
        for mark_style, entry, size, line_style in (
            (_IN_USE_STYLE, result.chosen, 13, {"mfc": "none", "mew": 1.4}),
            (_BEST_STYLE, result.best, 11, {"mec": "white", "mew": 0.6, "zorder": 3}),
        ):
            marked_points = [p for p in means if entry is not None and p.x == entry.learning_rate]
            marked = {label: row_style._replace(marker=mark_style.marker)}
            draw_lines(axes, marked_points, marked, marker_size=size, lw=0, **line_style)
    set_log_ticks(
        axes, context.learning_rates, list(map(format_learning_rate, context.learning_rates))
    )
    better = f"{_metric_words(context)} ({context.options.better} is better)"
    label_axes(axes, x="peak learning rate", y=better, title=context.title)
