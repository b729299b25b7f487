"""Columns of histories: at equal parts of the training, and as a panel each."""

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

PARTS = (10, 25, 50, 100)
"""Parts of the training in % with a column each: what was logged nearest to it."""


def section(context: SectionContext[Options]) -> Section:
    """Make the section: for each curve its values along training."""
    columns = [
        Column(id=f"{curve.column}_{part}", header=f"{curve.header}, {part}%")
        for curve in context.options.curves
        for part in PARTS
    ]
    cells = [
        cell
        for row in context.rows
        for one in context.options.curves
        for cell in _at(context, row, one)
    ]
    notes = ["What was logged nearest to these parts of the training.", context.training_note()]
    return make_section(context, columns, cells, notes)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw a panel for each curve of the first section."""
    curves = context.options.curves
    drawn, (places,) = subplot_grid(1, len(curves), (4.6 * len(curves), 3.9))
    for axes, curve in zip(places, curves, strict=True):
        for row in context.rows:
            points = token_points(context.results.histories, row.run, context.seeds, curve.column)
            draw_lines(axes, points, context.styles)
        label_axes(axes, x="training tokens", y=curve.header)
    legend_below(drawn, row_legend(context.rows, context.styles))
    return drawn


def _at(context: SectionContext[Options], row: ResolvedRow, curve: CurveConfig) -> list[Cell]:
    found: list[tuple[Result, Series]] = [
        (result, context.results.histories.series(row.run, result.seed, curve.column))
        for result in context.train_results(row)
    ]
    cells = []
    for part in PARTS:
        values = [
            # Of a training that diverged before the first evaluation there is none.
            (result, one.values[one.nearest(part, 100)] if one.tokens else None)
            for result, one in found
        ]
        place = CellKey(row.run, f"{curve.column}_{part}")
        seeds = seed_values(values, curve.decimals)
        cells.append(mean_cell(place, seeds, curve.decimals, context.published))
    return cells
