"""Table and figure of cumulative loss by position, with paired differences."""

from difftransformer.config.evaluation import Options
from difftransformer.config.papers import PaperTable
from difftransformer.errors import UserError
from difftransformer.evaluations.nll_by_position.settings import (
    WINDOW_LOSS,
    nll_metric,
    positions_in,
)
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
    """Return the report section of mean losses in nats per token up to each position.

    If rows have baselines, a section of paired differences follows.
    """
    metrics = [
        MetricColumn(nll_metric(position), f"{position} ↓") for position in context.suite.positions
    ]
    metrics.append(MetricColumn(WINDOW_LOSS, "window ↓", csv_only=True))
    # The published positions differ from ours.
    cells = metric_cells(context, metrics, _DECIMALS, PublishedValues(None))
    columns = [
        Column(id=metric.id, header=metric.header, csv_only=metric.csv_only) for metric in metrics
    ]
    measured = make_section(context, columns, cells, _notes(context))
    if not context.has_baselines:
        return [measured]
    cells = paired_differences(context.rows, [metric.id for metric in columns], cells, _DECIMALS)
    columns = [
        Column(
            id=metric.id + DIFFERENCE_SUFFIX,
            header=f"Δ {metric.header.removesuffix(' ↓')}",
            csv_only=metric.csv_only,
        )
        for metric in columns
    ]
    title = f"Paired difference, {context.difference_formula()}"
    return [
        measured,
        make_section(context, columns, cells, title=title, rows=context.rows_with_baseline),
    ]


def figure(context: SectionContext[Options]) -> Figure:
    """Draw mean losses by position and their paired differences; published curves are separate."""
    paper = context.artifact.paper
    number = 2 + (paper is not None)
    figure, ((first, second, *published),) = subplot_grid(1, number, (3.75 * number, 3.7))
    measured, *differences = section(context)
    _curves(first, context, measured)
    _differences(second, context, *differences)
    handles = row_legend(context.rows, context.styles, marker_size=4)
    if paper is not None:
        _published(published[0], context, paper)
        handles.append(legend_handle("published", hollow=True))
    legend_below(figure, handles, ncols=6)
    return figure


def _notes(context: SectionContext[Options]) -> list[str]:
    documents = {require_metric(result, "documents") for result in context.eval_results()}
    if len(documents) > 1:
        raise UserError(
            f"rows of '{context.artifact.artifact}' read different documents: rerun the older one"
        )
    return [
        f"Mean cross-entropy in nats over the targets 1 to p of a document, read from its start, "
        f"then over the {format_count(documents.pop())} held-out documents with more than "
        f"{context.suite.length} tokens.",
        *_extension(context),
        context.training_note(),
    ]


def _extension(context: SectionContext[Options]) -> list[str]:
    """Return a note on rows that extend the context of another run, if there are any."""
    extended = [result for result in context.train_results() if result.settings.get("init_from")]
    if not extended:
        return []
    theta = shared_setting(extended, "model", "rope_theta")
    seq_len = shared_setting(extended, "training", "seq_len")
    parents = {result.run: result.settings["init_from"] for result in extended}
    continued = ", ".join(
        f"{row.label} continues {parents[row.run]}" for row in context.rows if row.run in parents
    )
    return [f"Extension to {seq_len} tokens with rotary base {theta:g}; {continued}."]


def _curves(axes: Axes, context: SectionContext[Options], measured: Section) -> None:
    names = [nll_metric(position) for position in context.suite.positions]
    draw_lines(axes, _points(context, measured, names), context.styles, marker_size=4)
    _mark_positions(axes, context.suite.positions)
    label_axes(axes, x=_POSITION, y="nats per token", title="Cumulative NLL")


def _differences(
    axes: Axes, context: SectionContext[Options], differences: Section | None = None
) -> None:
    axes.axhline(0, color=INK, lw=0.8)
    if differences is not None:
        names = [nll_metric(position) + DIFFERENCE_SUFFIX for position in context.suite.positions]
        draw_lines(axes, _points(context, differences, names), context.styles, marker_size=4)
        x = dict(zip(names, context.suite.positions, strict=True))
        ends = [
            Point(cell.row, x[cell.column], end)
            for cell in select_cells(differences, names)
            for end in cell_interval(cell) or ()
        ]
        draw_lines(axes, ends, context.styles, err_style="bars", lw=0, err_kws={"elinewidth": 1.2})
    _mark_positions(axes, context.suite.positions)
    label_axes(axes, x=_POSITION, y="nats per token", title=difference_title(context))


def _published(axes: Axes, context: SectionContext[Options], paper: PaperTable) -> None:
    points = [
        Point(row.run, position, value)
        for row in context.rows
        for position in (positions_in(paper.rows[row.run].values) if row.run in paper.rows else [])
        if (value := context.published.number(row.run, nll_metric(position))) is not None
    ]
    draw_lines(axes, points, context.styles, **PUBLISHED_STYLE)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda position, _: _short_position(position, 1000))
    axes.minorticks_off()
    title = f"Published: {paper.scale}"
    label_axes(axes, x=_POSITION, y="nats per token (levels inferred)", title=title)


def _points(context: SectionContext[Options], section: Section, names: list[str]) -> list[Point]:
    """Return the values of every seed at each position."""
    x = dict(zip(names, context.suite.positions, strict=True))
    return [
        Point(cell.row, x[cell.column], value, seed)
        for cell in select_cells(section, names)
        for seed, value in cell.by_seed().items()
    ]


def _mark_positions(axes: Axes, positions: list[int]) -> None:
    """Label the axis at halvings of the last position: 512, 256, ..."""
    ticks = [
        positions[-1] >> shift
        for shift in range(positions[-1].bit_length())
        if positions[-1] >> shift >= positions[0]
    ]
    labeled = ticks[:: max(1, len(ticks) // 6)]
    set_log_ticks(axes, labeled, [_short_position(tick, 1024) for tick in labeled], base=2)


def _short_position(position: float, thousand: int) -> str:
    """Return a short text of a position: 64K for 65536."""
    return f"{position / thousand:g}K" if position >= thousand else f"{position:g}"
