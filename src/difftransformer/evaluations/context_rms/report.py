"""The context RMS by position, as columns beside its bounds and as a panel for each mechanism."""

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from difftransformer.evaluations.context_rms.bounds import bounds, published
from difftransformer.evaluations.context_rms.settings import QUANTILES, Options, place_metric
from difftransformer.models.config import LAMBDA
from difftransformer.provenance.result import Result
from difftransformer.reporting.charts import draw_lines, seed_points
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import (
    INK,
    Axes,
    Figure,
    RowStyle,
    escape_label,
    label_axes,
    legend_below,
    legend_handle,
    row_styles,
)
from difftransformer.reporting.number_format import format_count, format_number
from difftransformer.reporting.panels import axes_per_row, set_log_ticks
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import (
    MetricColumn,
    layer_columns,
    metric_cells,
    metric_section,
)
from difftransformer.reporting.table_notes import format_range

TITLES = {
    "weights": "Weights alone, as the bounds assume",
    "before": "Measured, before a headwise norm",
    "after": "Measured, what W_O gets",
}
"""Kinds in the order of the report."""
_COLUMNS, _DECIMALS = 4, 2
_BOUND = RowStyle(INK, (1, 1.65), "")


def section(context: SectionContext[Options]) -> list[Section]:
    """Make the sections, one a kind; the middle 90% of heads and windows is in the csv."""
    weights, before, after = (_section(context, kind) for kind in TITLES)
    return [_with_bounds_and_lambdas(context, weights), before, after]


def _section(context: SectionContext[Options], kind: str) -> Section:
    at = context.suite.places
    metrics = [MetricColumn(place_metric(kind, n), f"n = {n}") for n in at]
    metrics += [
        MetricColumn(place_metric(kind, n, ending), f"n = {n}, {quantile:.0%}", hidden=True)
        for n in at
        for ending, quantile in QUANTILES.items()
    ]
    if kind == "after":
        metrics.append(MetricColumn("magnification", "Magnified by ↓"))
        metrics.append(MetricColumn("magnification_top", "at most ↓"))
    notes = _notes(context) if kind == "weights" else []
    made = metric_section(context, metrics, decimals=_DECIMALS, notes=notes)
    return made.model_copy(update={"title": TITLES[kind]})


def _with_bounds_and_lambdas(context: SectionContext[Options], section: Section) -> Section:
    """Add bounds, and the learned factor of the maps that are subtracted: its range.

    Every layer's own factor is in the csv.
    """
    columns, cells, notes = bounds(context)
    metrics = layer_columns(context, LAMBDA, "λ")
    found = metric_cells(context, metrics, _DECIMALS, context.published)
    cells += [cell for cell in found if cell.value is not None]
    for row in context.rows:
        seeds = [seed for cell in found if cell.row == row.run for seed in cell.seeds]
        values = [seed.value for seed in seeds if seed.value is not None]
        if values:
            text = format_range(values, partial(format_number, decimals=_DECIMALS))
            cells.append(Cell(row=row.run, column="lambda", text=text, seeds=seeds))
    columns.append(Column(id="lambda", header="Learned λ"))
    columns += [Column(id=one.id, header=one.header, tidy_only=True) for one in metrics]
    return section.model_copy(
        update={
            "columns": [*section.columns, *columns],
            "cells": [*section.cells, *cells],
            "notes": [*section.notes, *notes],
        }
    )


def _notes(context: SectionContext[Options]) -> list[str]:
    tokens = format_count(require_metric(context.eval_results()[0], "tokens"))
    return [f"Means over windows, layers and heads of {tokens} tokens.", context.training_note()]


def figure(context: SectionContext[Options]) -> Figure:
    """Draw a panel for each mechanism, with all readings and its published bounds."""
    import matplotlib.pyplot as plt

    at, look = context.suite.places, row_styles(dict.fromkeys(TITLES))
    height = 2.5 * -(-len(context.rows) // _COLUMNS) + 0.6
    figure = plt.figure(figsize=(12, height), layout="constrained")
    for axes, row, lowest in axes_per_row(figure, context.rows, _COLUMNS):
        _bounds(axes, context, row.run, at)
        for kind in TITLES:
            _reading(axes, context.eval_results(row), kind, at, look)
        label_axes(axes, x="position n" if lowest else "", y="", title=escape_label(row.label))
    shared = figure.axes[0]
    shared.set_yscale("log")
    set_log_ticks(shared, at, list(map(str, at)))
    figure.supylabel("context RMS", fontsize=9)
    signs = [legend_handle("published bounds", _BOUND, line=1.2, mark=0)]
    signs += [legend_handle(title, look[kind], line=1.6, mark=0) for kind, title in TITLES.items()]
    legend_below(figure, signs)
    return figure


def _reading(
    axes: Axes, found: Sequence[Result], kind: str, at: list[int], look: dict[str, RowStyle]
) -> None:
    """Draw the mean over seeds; the band holds the middle 90% of heads and windows."""
    middle, low, high = (
        [fmean(require_metric(one, place_metric(kind, n, ending)) for one in found) for n in at]
        for ending in ("", *QUANTILES)
    )
    draw_lines(axes, seed_points(kind, at, [middle]), look)
    axes.fill_between(at, low, high, color=look[kind].color, alpha=0.15, lw=0)


def _bounds(axes: Axes, context: SectionContext[Options], run: str, at: list[int]) -> None:
    """Draw a row's published bounds; a lower one of 0 is off any logarithmic axis."""
    known = published(context, run)
    if known is None:
        return
    axes.plot(at, [known[2]] * len(at), ":", color=INK, lw=1.2)
    if known[1]:
        axes.plot(at, [known[1] / n**0.5 for n in at], ":", color=INK, lw=1.2)
