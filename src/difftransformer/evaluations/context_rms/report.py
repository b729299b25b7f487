"""Tables and figure of the context RMS by position, beside its bounds, one panel per model."""

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from difftransformer.evaluations.context_rms.bounds import bounds, published
from difftransformer.evaluations.context_rms.settings import QUANTILES, Options, position_metric
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
    "before": "Measured, before a per-head RMSNorm",
    "after": "Measured, input of W_O",
}
"""Kind of magnitude (of KINDS) -> title of its section, in the order of the report."""
_COLUMNS, _DECIMALS = 4, 2
_BOUND = RowStyle(INK, (1, 1.65), "")


def section(context: SectionContext[Options]) -> list[Section]:
    """Return one report section per kind of magnitude; the middle 90% is in the csv only."""
    weights, before, after = (_section(context, kind) for kind in TITLES)
    return [_with_bounds_and_lambdas(context, weights), before, after]


def _section(context: SectionContext[Options], kind: str) -> Section:
    positions = context.suite.metric_positions
    metrics = [MetricColumn(position_metric(kind, n), f"n = {n}") for n in positions]
    metrics += [
        MetricColumn(position_metric(kind, n, ending), f"n = {n}, {quantile:.0%}", csv_only=True)
        for n in positions
        for ending, quantile in QUANTILES.items()
    ]
    if kind == "after":
        metrics.append(MetricColumn("magnification", "Magnification by the norm ↓"))
        metrics.append(MetricColumn("magnification_max", "largest ↓"))
    notes = _notes(context) if kind == "weights" else []
    section = metric_section(context, metrics, decimals=_DECIMALS, notes=notes)
    return section.model_copy(update={"title": TITLES[kind]})


def _with_bounds_and_lambdas(context: SectionContext[Options], section: Section) -> Section:
    """Return the section with bounds and the range of λ over layers; λ by layer is in the csv."""
    columns, cells, notes = bounds(context)
    metrics = layer_columns(context, LAMBDA, "λ")
    lambdas = metric_cells(context, metrics, _DECIMALS, context.published)
    cells += [cell for cell in lambdas if cell.value is not None]
    for row in context.rows:
        seeds = [seed for cell in lambdas if cell.row == row.run for seed in cell.seeds]
        values = [seed.value for seed in seeds if seed.value is not None]
        if values:
            text = format_range(values, partial(format_number, decimals=_DECIMALS))
            cells.append(Cell(row=row.run, column="lambda", text=text, seeds=seeds))
    columns.append(Column(id="lambda", header="Learned λ"))
    columns += [Column(id=metric.id, header=metric.header, csv_only=True) for metric in metrics]
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
    """Draw the context RMS by position, one panel per model, with its published bounds."""
    import matplotlib.pyplot as plt

    positions, styles = context.suite.metric_positions, row_styles(dict.fromkeys(TITLES))
    height = 2.5 * -(-len(context.rows) // _COLUMNS) + 0.6
    fig = plt.figure(figsize=(12, height), layout="constrained")
    for axes, row, lowest in axes_per_row(fig, context.rows, _COLUMNS):
        _draw_bounds(axes, context, row.run, positions)
        for kind in TITLES:
            _draw_kind(axes, context.eval_results(row), kind, positions, styles)
        label_axes(axes, x="position n" if lowest else "", y="", title=escape_label(row.label))
    shared = fig.axes[0]
    shared.set_yscale("log")
    set_log_ticks(shared, positions, list(map(str, positions)))
    fig.supylabel("context RMS", fontsize=9)
    signs = [legend_handle("published bounds", _BOUND, line_width=1.2, marker_size=0)]
    signs += [
        legend_handle(title, styles[kind], line_width=1.6, marker_size=0)
        for kind, title in TITLES.items()
    ]
    legend_below(fig, signs)
    return fig


def _draw_kind(
    axes: Axes,
    results: Sequence[Result],
    kind: str,
    positions: list[int],
    styles: dict[str, RowStyle],
) -> None:
    """Draw the mean over seeds, and a band with the middle 90% of heads and windows."""
    mean, low, high = (
        [
            fmean(require_metric(result, position_metric(kind, n, ending)) for result in results)
            for n in positions
        ]
        for ending in ("", *QUANTILES)
    )
    draw_lines(axes, seed_points(kind, positions, [mean]), styles)
    axes.fill_between(positions, low, high, color=styles[kind].color, alpha=0.15, lw=0)


def _draw_bounds(
    axes: Axes, context: SectionContext[Options], run: str, positions: list[int]
) -> None:
    """Draw a model's published bounds; a lower bound of 0 is not on a logarithmic axis."""
    bounds = published(context, run)
    if bounds is None:
        return
    _, low_times_root_n, high = bounds
    axes.plot(positions, [high] * len(positions), ":", color=INK, lw=1.2)
    if low_times_root_n:
        low = [low_times_root_n / n**0.5 for n in positions]
        axes.plot(positions, low, ":", color=INK, lw=1.2)
