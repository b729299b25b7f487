"""Table of training-history columns at fractions of training, and a figure of their curves."""

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.evaluations.training_curves.settings import CurveConfig, Options
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import CellKey, mean_cell, seed_values
from difftransformer.reporting.charts import draw_lines, token_points
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import Figure, label_axes, legend_below
from difftransformer.reporting.histories import Series
from difftransformer.reporting.panels import row_legend, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import make_section

PERCENTS = (10, 25, 50, 100)
"""Fractions of training in %; each has a table column with the nearest logged value."""


def section(context: SectionContext[Options]) -> Section:
    """Return the report section with the values of history columns at fractions of training."""
    columns = [
        Column(id=f"{curve.column}_{percent}", header=f"{curve.header}, {percent}%")
        for curve in context.options.curves
        for percent in PERCENTS
    ]
    cells = [
        cell
        for row in context.rows
        for curve in context.options.curves
        for cell in _curve_cells(context, row, curve)
    ]
    notes = [
        "Values are those logged nearest to these fractions of training.",
        context.training_note(),
    ]
    return make_section(context, columns, cells, notes)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the chosen columns of the training history by training tokens, one panel per column."""
    curves = context.options.curves
    drawn, (panel_axes,) = subplot_grid(1, len(curves), (4.6 * len(curves), 3.9))
    for axes, curve in zip(panel_axes, curves, strict=True):
        for row in context.rows:
            points = token_points(context.results.histories, row.run, context.seeds, curve.column)
            draw_lines(axes, points, context.styles)
        label_axes(axes, x="training tokens", y=curve.header)
    legend_below(drawn, row_legend(context.rows, context.styles))
    return drawn


def _curve_cells(
    context: SectionContext[Options], row: ResolvedRow, curve: CurveConfig
) -> list[Cell]:
    results: list[tuple[Result, Series]] = [
        (result, context.results.histories.series(row.run, result.seed, curve.column))
        for result in context.train_results(row)
    ]
    cells = []
    for percent in PERCENTS:
        values = [
            # A training that diverged before the first evaluation has no value.
            (result, series.values[series.nearest(percent, 100)] if series.tokens else None)
            for result, series in results
        ]
        key = CellKey(row.run, f"{curve.column}_{percent}")
        seeds = seed_values(values, curve.decimals)
        cells.append(mean_cell(key, seeds, curve.decimals, context.published))
    return cells
