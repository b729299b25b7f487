"""Columns of histories: at equal parts of the training, and as a panel each."""

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.evaluations.training_curves.settings import CurveConfig, Options
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import Place, mean_cell, seed_values
from difftransformer.reporting.charts import by_tokens, lines
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import Figure, legend_below, tidy
from difftransformer.reporting.histories import Series
from difftransformer.reporting.panels import panels, row_signs
from difftransformer.reporting.sections import section_of
from difftransformer.reporting.view import View

PARTS = (10, 25, 50, 100)
"""Parts of the training in % with a column each: what was logged nearest to it."""


def section(view: View[Options]) -> Section:
    """Make the section: for each curve its values along training."""
    columns = [
        Column(id=f"{curve.column}_{part}", header=f"{curve.header}, {part}%")
        for curve in view.options.curves
        for part in PARTS
    ]
    cells = [
        cell for row in view.rows for one in view.options.curves for cell in _at(view, row, one)
    ]
    notes = ["What was logged nearest to these parts of the training.", view.training_note()]
    return section_of(view, columns, cells, notes)


def figure(view: View[Options]) -> Figure:
    """Draw a panel for each curve of the first section."""
    curves = view.options.curves
    drawn, (places,) = panels(1, len(curves), (4.6 * len(curves), 3.9))
    for axes, curve in zip(places, curves, strict=True):
        for row in view.rows:
            points = by_tokens(view.results.histories, row.run, view.seeds, curve.column)
            lines(axes, points, view.look)
        tidy(axes, x="training tokens", y=curve.header)
    legend_below(drawn, row_signs(view.rows, view.look))
    return drawn


def _at(view: View[Options], row: RowSlice, curve: CurveConfig) -> list[Cell]:
    found: list[tuple[Result, Series]] = [
        (result, view.results.histories.series(row.run, result.seed, curve.column))
        for result in view.trained(row)
    ]
    cells = []
    for part in PARTS:
        values = [
            # Of a training that diverged before the first evaluation there is none.
            (result, one.values[one.nearest(part, 100)] if one.tokens else None)
            for result, one in found
        ]
        place = Place(row.run, f"{curve.column}_{part}")
        seeds = seed_values(values, curve.decimals)
        cells.append(mean_cell(place, seeds, curve.decimals, view.paper))
    return cells
