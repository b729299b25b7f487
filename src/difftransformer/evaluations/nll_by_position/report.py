"""Cumulative loss by position, its paired differences, and the published curves."""

from difftransformer.config.evaluation import Options
from difftransformer.config.papers import PaperTable
from difftransformer.errors import UserError
from difftransformer.evaluations.nll_by_position.settings import WHOLE, nll_name, places_in
from difftransformer.reporting.cells import DIFFERENCE_SUFFIX, PublishedValues, paired_differences
from difftransformer.reporting.charts import (
    PUBLISHED_STYLE,
    Point,
    cell_interval,
    draw_lines,
    select_cells,
)
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Column, Section
from difftransformer.reporting.drawing import (
    INK,
    Axes,
    Figure,
    label_axes,
    legend_below,
    legend_handle,
)
from difftransformer.reporting.loss_panels import difference_title
from difftransformer.reporting.number_format import format_count
from difftransformer.reporting.panels import row_legend, set_log_ticks, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, make_section, metric_cells
from difftransformer.reporting.table_notes import shared_setting

_DECIMALS = 3
_POSITION = "position in the document (tokens)"


def section(context: SectionContext[Options]) -> list[Section]:
    """Make the section: mean loss in nats per token from the start of a document to a position.

    Where rows are compared, one of paired differences stands behind it.
    """
    metrics = [MetricColumn(nll_name(place), f"{place} ↓") for place in context.suite.places]
    metrics.append(MetricColumn(WHOLE, "whole window ↓", hidden=True))
    # The published positions are others.
    cells = metric_cells(context, metrics, _DECIMALS, PublishedValues(None))
    columns = [Column(id=one.id, header=one.header, tidy_only=one.hidden) for one in metrics]
    measured = make_section(context, columns, cells, _notes(context))
    if not context.has_baselines:
        return [measured]
    cells = paired_differences(context.rows, [one.id for one in columns], cells, _DECIMALS)
    columns = [
        Column(
            id=one.id + DIFFERENCE_SUFFIX,
            header=f"Δ {one.header.removesuffix(' ↓')}",
            tidy_only=one.tidy_only,
        )
        for one in columns
    ]
    title = f"Paired difference, {context.difference_formula()}"
    return [
        measured,
        make_section(context, columns, cells, title=title, rows=context.rows_with_baseline),
    ]


def figure(context: SectionContext[Options]) -> Figure:
    """Draw both sections; published curves have axes of their own."""
    paper = context.artifact.paper
    number = 2 + (paper is not None)
    figure, ((first, second, *published),) = subplot_grid(1, number, (3.75 * number, 3.7))
    measured, *differences = section(context)
    _curves(first, context, measured)
    _differences(second, context, *differences)
    signs = row_legend(context.rows, context.styles, mark=4)
    if paper is not None:
        _published(published[0], context, paper)
        signs.append(legend_handle("published", hollow=True))
    legend_below(figure, signs, ncols=6)
    return figure


def _notes(context: SectionContext[Options]) -> list[str]:
    documents = {require_metric(result, "documents") for result in context.eval_results()}
    if len(documents) > 1:
        raise UserError(
            f"rows of '{context.artifact.artifact}' read different documents: rerun the older"
        )
    return [
        f"Mean cross-entropy in nats over the targets 1 to p of a document, read from its start, "
        f"then over the {format_count(documents.pop())} held-out documents with more than "
        f"{context.suite.length} tokens.",
        *_extension(context),
        context.training_note(),
    ]


def _extension(context: SectionContext[Options]) -> list[str]:
    """Say what the rows that continue another are an extension of, if there are any."""
    extended = [result for result in context.train_results() if result.settings.get("init_from")]
    if not extended:
        return []
    theta = shared_setting(extended, "model", "rope_theta")
    length = shared_setting(extended, "training", "seq_len")
    parents = {result.run: result.settings["init_from"] for result in extended}
    continued = ", ".join(
        f"{row.label} continues {parents[row.run]}" for row in context.rows if row.run in parents
    )
    return [f"Extension to {length} tokens with rotary base {theta:g}; {continued}."]


def _curves(axes: Axes, context: SectionContext[Options], measured: Section) -> None:
    names = [nll_name(place) for place in context.suite.places]
    draw_lines(axes, _points(context, measured, names), context.styles, marks=4)
    _positions(axes, context.suite.places)
    label_axes(axes, x=_POSITION, y="nats per token", title="Cumulative NLL")


def _differences(
    axes: Axes, context: SectionContext[Options], differences: Section | None = None
) -> None:
    axes.axhline(0, color=INK, lw=0.8)
    if differences is not None:
        names = [nll_name(place) + DIFFERENCE_SUFFIX for place in context.suite.places]
        draw_lines(axes, _points(context, differences, names), context.styles, marks=4)
        x = dict(zip(names, context.suite.places, strict=True))
        ends = [
            Point(cell.row, x[cell.column], end)
            for cell in select_cells(differences, names)
            for end in cell_interval(cell) or ()
        ]
        draw_lines(axes, ends, context.styles, err_style="bars", lw=0, err_kws={"elinewidth": 1.2})
    _positions(axes, context.suite.places)
    label_axes(axes, x=_POSITION, y="nats per token", title=difference_title(context))


def _published(axes: Axes, context: SectionContext[Options], paper: PaperTable) -> None:
    points = [
        Point(row.run, place, value)
        for row in context.rows
        for place in (places_in(paper.rows[row.run].values) if row.run in paper.rows else [])
        if (value := context.published.number(row.run, nll_name(place))) is not None
    ]
    draw_lines(axes, points, context.styles, **PUBLISHED_STYLE)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda place, _: _short(place, 1000))
    axes.minorticks_off()
    title = f"Published: {paper.scale}"
    label_axes(axes, x=_POSITION, y="nats per token (levels inferred)", title=title)


def _points(context: SectionContext[Options], section: Section, names: list[str]) -> list[Point]:
    """Values of every seed at each position."""
    x = dict(zip(names, context.suite.places, strict=True))
    return [
        Point(cell.row, x[cell.column], value, seed)
        for cell in select_cells(section, names)
        for seed, value in cell.by_seed().items()
    ]


def _positions(axes: Axes, at: list[int]) -> None:
    """Mark the doublings from the last position down: 512, 256, ..."""
    ticks = [at[-1] >> shift for shift in range(at[-1].bit_length()) if at[-1] >> shift >= at[0]]
    shown = ticks[:: max(1, len(ticks) // 6)]
    set_log_ticks(axes, shown, [_short(tick, 1024) for tick in shown], base=2)


def _short(place: float, thousand: int) -> str:
    """Write a position shortly: 64K for 65536."""
    return f"{place / thousand:g}K" if place >= thousand else f"{place:g}"
