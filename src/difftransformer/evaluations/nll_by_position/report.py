"""Cumulative loss by position, its paired differences, and the published curves."""

from difftransformer.config.evaluation import Options
from difftransformer.config.papers import PaperTable
from difftransformer.errors import UserError
from difftransformer.evaluations.nll_by_position.settings import WHOLE, nll_name, places_in
from difftransformer.reporting.cells import DIFFERENCE, Paper, paired_differences
from difftransformer.reporting.charts import PUBLISHED, Point, cells_of, interval, lines
from difftransformer.reporting.collect import defined
from difftransformer.reporting.conditions import shared_setting
from difftransformer.reporting.document import Column, Section
from difftransformer.reporting.drawing import INK, Axes, Figure, legend_below, sign, tidy
from difftransformer.reporting.loss_panels import difference_title
from difftransformer.reporting.numbers import count
from difftransformer.reporting.panels import log_ticks, panels, row_signs
from difftransformer.reporting.sections import Metric, metric_cells, section_of
from difftransformer.reporting.view import View

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


def figure(view: View[Options]) -> Figure:
    """Draw both sections; published curves have axes of their own."""
    paper = view.artifact.paper
    number = 2 + (paper is not None)
    figure, ((first, second, *published),) = panels(1, number, (3.75 * number, 3.7))
    measured, *differences = section(view)
    _curves(first, view, measured)
    _differences(second, view, *differences)
    signs = row_signs(view.rows, view.look, mark=4)
    if paper is not None:
        _published(published[0], view, paper)
        signs.append(sign("published", hollow=True))
    legend_below(figure, signs, ncols=6)
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


def _curves(axes: Axes, view: View[Options], measured: Section) -> None:
    names = [nll_name(place) for place in view.suite.places]
    lines(axes, _points(view, measured, names), view.look, marks=4)
    _positions(axes, view.suite.places)
    tidy(axes, x=_POSITION, y="nats per token", title="Cumulative NLL")


def _differences(axes: Axes, view: View[Options], differences: Section | None = None) -> None:
    axes.axhline(0, color=INK, lw=0.8)
    if differences is not None:
        names = [nll_name(place) + DIFFERENCE for place in view.suite.places]
        lines(axes, _points(view, differences, names), view.look, marks=4)
        x = dict(zip(names, view.suite.places, strict=True))
        ends = [
            Point(cell.row, x[cell.column], end)
            for cell in cells_of(differences, names)
            for end in interval(cell) or ()
        ]
        lines(axes, ends, view.look, err_style="bars", lw=0, err_kws={"elinewidth": 1.2})
    _positions(axes, view.suite.places)
    tidy(axes, x=_POSITION, y="nats per token", title=difference_title(view))


def _published(axes: Axes, view: View[Options], paper: PaperTable) -> None:
    points = [
        Point(row.run, place, value)
        for row in view.rows
        for place in (places_in(paper.rows[row.run].values) if row.run in paper.rows else [])
        if (value := view.paper.number(row.run, nll_name(place))) is not None
    ]
    lines(axes, points, view.look, **PUBLISHED)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda place, _: _short(place, 1000))
    axes.minorticks_off()
    title = f"Published: {paper.scale}"
    tidy(axes, x=_POSITION, y="nats per token (levels inferred)", title=title)


def _points(view: View[Options], section: Section, names: list[str]) -> list[Point]:
    """Values of every seed at each position."""
    x = dict(zip(names, view.suite.places, strict=True))
    return [
        Point(cell.row, x[cell.column], value, seed)
        for cell in cells_of(section, names)
        for seed, value in cell.by_seed().items()
    ]


def _positions(axes: Axes, at: list[int]) -> None:
    """Mark the doublings from the last position down: 512, 256, ..."""
    ticks = [at[-1] >> shift for shift in range(at[-1].bit_length()) if at[-1] >> shift >= at[0]]
    shown = ticks[:: max(1, len(ticks) // 6)]
    log_ticks(axes, shown, [_short(tick, 1024) for tick in shown], base=2)


def _short(place: float, thousand: int) -> str:
    """Write a position shortly: 64K for 65536."""
    return f"{place / thousand:g}K" if place >= thousand else f"{place:g}"
