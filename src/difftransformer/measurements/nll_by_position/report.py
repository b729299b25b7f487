"""Cumulative loss by position, its paired differences, and the published curves."""

from typing import TYPE_CHECKING

from difftransformer.config.measurement import Options
from difftransformer.config.papers import PaperTable
from difftransformer.errors import UserError
from difftransformer.measurements.nll_by_position.settings import WHOLE, nll_name, places_in
from difftransformer.reporting.cells import DIFFERENCE, Paper, paired_differences
from difftransformer.reporting.collect import defined
from difftransformer.reporting.conditions import shared_setting
from difftransformer.reporting.curves import Curve, draw
from difftransformer.reporting.document import Column, Section
from difftransformer.reporting.drawing import INK, legend_below, printable, tidy
from difftransformer.reporting.loss_panels import difference_title
from difftransformer.reporting.numbers import count
from difftransformer.reporting.panels import log_ticks, panels, published_curve
from difftransformer.reporting.sections import Metric, metric_cells, section_of
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DECIMALS = 3
_POSITION = "position in the document (tokens)"


def section(view: View[Options]) -> list[Section]:
    """Make the section: mean loss in nats per token from the start of a document to a position.

    Where rows are compared, one of paired differences stands behind it.
    """
    metrics = [Metric(nll_name(place), f"{place} ↓") for place in view.suite.places]
    metrics.append(Metric(WHOLE, "whole window ↓", hidden=True))
    # The published positions are others.
    cells = metric_cells(view, metrics, _DECIMALS, Paper(None))
    columns = [Column(id=one.id, header=one.header, tidy_only=one.hidden) for one in metrics]
    measured = section_of(view, columns, cells, _notes(view))
    if not view.compared:
        return [measured]
    cells = paired_differences(view.rows, [one.id for one in columns], cells, _DECIMALS)
    columns = [
        Column(
            id=one.id + DIFFERENCE,
            header=f"Δ {one.header.removesuffix(' ↓')}",
            tidy_only=one.tidy_only,
        )
        for one in columns
    ]
    title = f"Paired difference, {view.compared_with()}"
    return [measured, section_of(view, columns, cells, title=title, rows=view.compared_rows)]


def figure(view: View[Options]) -> "Figure":
    """Draw both sections; published curves have axes of their own."""
    paper = view.artifact.paper
    number = 2 + (paper is not None)
    figure, ((first, second, *published),) = panels(1, number, (3.75 * number, 3.7))
    measured, *differences = section(view)
    _curves(first, view, measured)
    _differences(second, view, *differences)
    if paper is not None:
        _published(published[0], view, paper)
    legend_below(figure, first, *published, ncols=6)
    return figure


def _notes(view: View[Options]) -> list[str]:
    documents = {defined(result, "documents") for result in view.evaluated()}
    if len(documents) > 1:
        raise UserError(
            f"rows of '{view.artifact.artifact}' read different documents: rerun the older"
        )
    return [
        f"Mean cross-entropy in nats over the targets 1 to p of a document, read from its start, "
        f"then over the {count(documents.pop())} held-out documents with more than "
        f"{view.suite.length} tokens.",
        *_extension(view),
        view.training_note(),
    ]


def _extension(view: View[Options]) -> list[str]:
    """Say what the rows that continue another are an extension of, if there are any."""
    extended = [result for result in view.trained() if result.settings.get("init_from")]
    if not extended:
        return []
    theta = shared_setting(extended, "model", "rope_theta")
    context = shared_setting(extended, "training", "seq_len")
    parents = {result.run: result.settings["init_from"] for result in extended}
    continued = ", ".join(
        f"{row.label} continues {parents[row.run]}" for row in view.rows if row.run in parents
    )
    return [f"Extension to {context} tokens with rotary base {theta:g}; {continued}."]


def _curves(axes: "Axes", view: View[Options], measured: Section) -> None:
    at, look = view.suite.places, view.look
    for row in view.rows:
        curve = _curve(measured, row.run, at)
        draw(axes, curve, look[row.run], printable(row.label), marks=4)
    _positions(axes, at)
    tidy(axes, x=_POSITION, y="nats per token", title="Cumulative NLL")


def _differences(axes: "Axes", view: View[Options], differences: Section | None = None) -> None:
    at, look = view.suite.places, view.look
    axes.axhline(0, color=INK, lw=0.8)
    for row in view.compared_rows:
        assert differences is not None
        draw(axes, _curve(differences, row.run, at, DIFFERENCE), look[row.run], "", marks=4)
        for place in at:
            cell = differences.cell(row.run, nll_name(place) + DIFFERENCE)
            if cell is not None and cell.ci_low is not None and cell.ci_high is not None:
                reach = [cell.ci_low, cell.ci_high]
                axes.plot([place] * 2, reach, color=look[row.run].colour, lw=1.2)
    _positions(axes, at)
    tidy(axes, x=_POSITION, y="nats per token", title=difference_title(view))


def _published(axes: "Axes", view: View[Options], paper: PaperTable) -> None:
    look = view.look
    for row in view.rows:
        places = places_in(paper.rows[row.run].values) if row.run in paper.rows else []
        points = {float(place): view.paper.number(row.run, nll_name(place)) for place in places}
        published_curve(axes, points, look[row.run], row.label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda place, _: _short(place, 1000))
    axes.minorticks_off()
    title = f"Published: {paper.scale}"
    tidy(axes, x=_POSITION, y="nats per token (levels inferred)", title=title)


def _curve(section: Section, run: str, at: list[int], suffix: str = "") -> Curve:
    """Mean and range over seeds at each position."""
    by_place = []
    for place in at:
        cell = section.cell(run, nll_name(place) + suffix)
        assert cell is not None
        by_place.append(list(cell.by_seed().values()))
    return Curve(at, by_place)


def _positions(axes: "Axes", at: list[int]) -> None:
    """Mark the doublings from the last position down: 512, 256, ..."""
    ticks = [at[-1] >> shift for shift in range(at[-1].bit_length()) if at[-1] >> shift >= at[0]]
    shown = ticks[:: max(1, len(ticks) // 6)]
    log_ticks(axes, shown, [_short(tick, 1024) for tick in shown], base=2)


def _short(place: float, thousand: int) -> str:
    """Write a position shortly: 64K for 65536."""
    return f"{place / thousand:g}K" if place >= thousand else f"{place:g}"
