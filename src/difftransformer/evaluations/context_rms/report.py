"""The context RMS by position, as columns beside its bounds and as a panel for each mechanism."""

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from difftransformer.evaluations.context_rms.bounds import bounds, published
from difftransformer.evaluations.context_rms.settings import QUANTILES, Options, place_metric
from difftransformer.models.config import LAMBDA
from difftransformer.provenance.result import Result
from difftransformer.reporting.charts import lines, over_seeds
from difftransformer.reporting.collect import defined
from difftransformer.reporting.conditions import span
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import (
    INK,
    Axes,
    Figure,
    Look,
    legend_below,
    looks,
    printable,
    sign,
    tidy,
)
from difftransformer.reporting.numbers import count, plain
from difftransformer.reporting.panels import log_ticks, one_a_row
from difftransformer.reporting.sections import Metric, by_layer, metric_cells, metric_section
from difftransformer.reporting.view import View

TITLES = {
    "weights": "Weights alone, as the bounds assume",
    "before": "Measured, before a headwise norm",
    "after": "Measured, what W_O gets",
}
"""Kinds in the order of the report."""
_COLUMNS, _DECIMALS = 4, 2
_BOUND = Look(INK, (1, 1.65), "")


def section(view: View[Options]) -> list[Section]:
    """Make the sections, one a kind; the middle 90% of heads and windows is in the csv."""
    weights, before, after = (_section(view, kind) for kind in TITLES)
    return [_with_bounds_and_lambdas(view, weights), before, after]


def _section(view: View[Options], kind: str) -> Section:
    at = view.suite.places
    metrics = [Metric(place_metric(kind, n), f"n = {n}") for n in at]
    metrics += [
        Metric(place_metric(kind, n, ending), f"n = {n}, {quantile:.0%}", hidden=True)
        for n in at
        for ending, quantile in QUANTILES.items()
    ]
    if kind == "after":
        metrics.append(Metric("magnification", "Magnified by ↓"))
        metrics.append(Metric("magnification_top", "at most ↓"))
    notes = _notes(view) if kind == "weights" else []
    made = metric_section(view, metrics, decimals=_DECIMALS, notes=notes)
    return made.model_copy(update={"title": TITLES[kind]})


def _with_bounds_and_lambdas(view: View[Options], section: Section) -> Section:
    """Add bounds, and the learned factor of the maps that are subtracted: its range.

    Every layer's own factor is in the csv.
    """
    columns, cells, notes = bounds(view)
    metrics = by_layer(view, LAMBDA, "λ")
    found = metric_cells(view, metrics, _DECIMALS, view.paper)
    cells += [cell for cell in found if cell.value is not None]
    for row in view.rows:
        seeds = [seed for cell in found if cell.row == row.run for seed in cell.seeds]
        values = [seed.value for seed in seeds if seed.value is not None]
        if values:
            text = span(values, partial(plain, decimals=_DECIMALS))
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


def _notes(view: View[Options]) -> list[str]:
    tokens = count(defined(view.evaluated()[0], "tokens"))
    return [f"Means over windows, layers and heads of {tokens} tokens.", view.training_note()]


def figure(view: View[Options]) -> Figure:
    """Draw a panel for each mechanism, with all readings and its published bounds."""
    import matplotlib.pyplot as plt

    at, look = view.suite.places, looks(dict.fromkeys(TITLES))
    height = 2.5 * -(-len(view.rows) // _COLUMNS) + 0.6
    figure = plt.figure(figsize=(12, height), layout="constrained")
    for axes, row, lowest in one_a_row(figure, view.rows, _COLUMNS):
        _bounds(axes, view, row.run, at)
        for kind in TITLES:
            _reading(axes, view.evaluated(row), kind, at, look)
        tidy(axes, x="position n" if lowest else "", y="", title=printable(row.label))
    shared = figure.axes[0]
    shared.set_yscale("log")
    log_ticks(shared, at, list(map(str, at)))
    figure.supylabel("context RMS", fontsize=9)
    signs = [sign("published bounds", _BOUND, line=1.2, mark=0)]
    signs += [sign(title, look[kind], line=1.6, mark=0) for kind, title in TITLES.items()]
    legend_below(figure, signs)
    return figure


def _reading(
    axes: Axes, found: Sequence[Result], kind: str, at: list[int], look: dict[str, Look]
) -> None:
    """Draw the mean over seeds; the band holds the middle 90% of heads and windows."""
    middle, low, high = (
        [fmean(defined(one, place_metric(kind, n, ending)) for one in found) for n in at]
        for ending in ("", *QUANTILES)
    )
    lines(axes, over_seeds(kind, at, [middle]), look)
    axes.fill_between(at, low, high, color=look[kind].color, alpha=0.15, lw=0)


def _bounds(axes: Axes, view: View[Options], run: str, at: list[int]) -> None:
    """Draw a row's published bounds; a lower one of 0 is off any logarithmic axis."""
    known = published(view, run)
    if known is None:
        return
    axes.plot(at, [known[2]] * len(at), ":", color=INK, lw=1.2)
    if known[1]:
        axes.plot(at, [known[1] / n**0.5 for n in at], ":", color=INK, lw=1.2)
