"""Target and source loss of adapted models: a table, and curves over learning rates or tokens."""

from difftransformer.evaluations.adaptation.frontier import (
    DECIMALS,
    DOMAINS,
    by_rate,
    draw_frontier,
)
from difftransformer.evaluations.adaptation.settings import Options
from difftransformer.reporting.cells import DIFFERENCE_SUFFIX, paired_differences
from difftransformer.reporting.charts import Point, draw_lines
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Column, Section
from difftransformer.reporting.drawing import Axes, Figure, label_axes, legend_below, row_styles
from difftransformer.reporting.number_format import format_count
from difftransformer.reporting.panels import row_legend, set_decade_ticks, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import (
    MetricColumn,
    fine_tuned_sizes,
    make_section,
    metric_cells,
)


def section(context: SectionContext[Options]) -> Section:
    """Build the section: losses by row, or by row and learning rate."""
    return by_rate(context) if context.options.swept else _by_run(context)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw target against source loss, as points or curves over rates, or both over tokens."""
    if context.options.by == "tokens":
        return _by_tokens(context)
    figure, ((axes,),) = subplot_grid(1, 1, (8, 5.6))
    (draw_frontier if context.options.swept else _points)(axes, context)
    label_axes(
        axes, x="target loss, nats per token", y="source loss, nats per token", title=context.title
    )
    line = 1.6 if context.options.swept else 0
    legend_below(figure, row_legend(context.rows, context.styles, line_width=line, marker_size=6))
    return figure


def _by_run(context: SectionContext[Options]) -> Section:
    cells = []
    for domain_view, metric in _domain_views(context):
        losses = metric_cells(domain_view, [metric], DECIMALS, context.published)
        cells += [*losses, *paired_differences(context.rows, [metric.id], losses, DECIMALS)]
    columns = [Column(id=metric.id, header=metric.header) for metric in DOMAINS]
    if context.has_baselines:
        columns += [
            Column(id=metric.id + DIFFERENCE_SUFFIX, header=f"Δ {metric.header}")
            for metric in DOMAINS
        ]
    sizes = fine_tuned_sizes(context)
    columns, cells = [*columns, *sizes.columns], [*cells, *sizes.cells]
    notes = [
        "Losses in nats per token on held-out text: the target text, to which models are adapted, "
        "and the source text, on which the pipeline's base models are trained.",
        *sizes.notes,
        context.training_note(),
    ]
    return make_section(context, columns, cells, [*notes, *context.difference_note()])


def _domain_views(
    context: SectionContext[Options],
) -> list[tuple[SectionContext[Options], MetricColumn]]:
    """Return the section once per domain, with only the suite of that domain."""
    return [
        (context.replace(suites=[suite]), metric)
        for suite, metric in zip(context.section.suites, DOMAINS, strict=True)
    ]


def _by_tokens(context: SectionContext[Options]) -> Figure:
    """Draw a panel per domain: losses of each row's setups over the tokens of their adaptation."""
    figure, (panel_axes,) = subplot_grid(1, len(DOMAINS), (10, 4.2))
    look = row_styles({family.run: family.look for family in context.section.families})
    rows = {row.run: row for row in context.rows}
    for axes, (domain_view, metric) in zip(panel_axes, _domain_views(context), strict=True):
        points = []
        for family in context.section.families:
            for run in family.members:
                tokens = require_metric(context.train_results(rows[run])[0], "tokens")
                losses = [metric.value(result) for result in domain_view.eval_results(rows[run])]
                if None not in losses:  # no mean over only the seeds that did not diverge
                    points += [
                        Point(family.run, tokens, loss) for loss in losses if loss is not None
                    ]
        draw_lines(axes, points, look, marker_size=4.5)
        set_decade_ticks(axes, lambda x, _: format_count(x))
        label_axes(
            axes, x="tokens of adaptation", y="loss, nats", title=metric.header.removesuffix(" ↓")
        )
    legend_below(figure, row_legend(context.section.families, look, marker_size=4.5))
    return figure


def _points(axes: Axes, context: SectionContext[Options]) -> None:
    table = section(context)
    cells = [[table.cell(row.run, metric.id) for metric in DOMAINS] for row in context.rows]
    points = [
        Point(target.row, target.value, source.value)
        for target, source in cells
        if target and source and target.value is not None and source.value is not None
    ]
    draw_lines(axes, points, context.styles, marker_size=6, lw=0)
