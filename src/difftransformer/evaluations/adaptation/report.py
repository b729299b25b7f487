"""Target and source loss of adapted models: a table, and curves over learning rates or tokens."""

from difftransformer.evaluations.adaptation.frontier import (
    DECIMALS,
    DOMAINS,
    by_rate,
    draw_frontier,
)
from difftransformer.evaluations.adaptation.settings import Options
from difftransformer.reporting.cells import DIFFERENCE, paired_differences
from difftransformer.reporting.charts import Point, lines
from difftransformer.reporting.collect import defined
from difftransformer.reporting.document import Column, Section
from difftransformer.reporting.drawing import Axes, Figure, legend_below, looks, tidy
from difftransformer.reporting.numbers import count
from difftransformer.reporting.panels import panels, round_log_ticks, row_signs
from difftransformer.reporting.sections import Metric, adapted_sizes, metric_cells, section_of
from difftransformer.reporting.view import View


def section(view: View[Options]) -> Section:
    """Build the section: losses by row, or by row and learning rate."""
    return by_rate(view) if view.options.swept else _by_run(view)


def figure(view: View[Options]) -> Figure:
    """Draw target against source loss, as points or curves over rates, or both over tokens."""
    if view.options.by == "tokens":
        return _by_tokens(view)
    figure, ((axes,),) = panels(1, 1, (8, 5.6))
    (draw_frontier if view.options.swept else _points)(axes, view)
    tidy(axes, x="target loss, nats per token", y="source loss, nats per token", title=view.title)
    line = 1.6 if view.options.swept else 0
    legend_below(figure, row_signs(view.rows, view.look, line=line, mark=6))
    return figure


def _by_run(view: View[Options]) -> Section:
    cells = []
    for domain_view, metric in _domain_views(view):
        losses = metric_cells(domain_view, [metric], DECIMALS, view.paper)
        cells += [*losses, *paired_differences(view.rows, [metric.id], losses, DECIMALS)]
    columns = [Column(id=metric.id, header=metric.header) for metric in DOMAINS]
    if view.compared:
        columns += [
            Column(id=metric.id + DIFFERENCE, header=f"Δ {metric.header}") for metric in DOMAINS
        ]
    sizes = adapted_sizes(view)
    columns, cells = [*columns, *sizes.columns], [*cells, *sizes.cells]
    notes = [
        "Losses in nats per token on held-out text: the target text, to which models are adapted, "
        "and the source text, on which the pipeline's base models are trained.",
        *sizes.notes,
        view.training_note(),
    ]
    return section_of(view, columns, cells, [*notes, *view.difference_note()])


def _domain_views(view: View[Options]) -> list[tuple[View[Options], Metric]]:
    """Return the section once per domain, with only the suite of that domain."""
    return [
        (view.having(suites=[suite]), metric)
        for suite, metric in zip(view.part.suites, DOMAINS, strict=True)
    ]


def _by_tokens(view: View[Options]) -> Figure:
    """Draw a panel per domain: losses of each row's setups over the tokens of their adaptation."""
    figure, (panel_axes,) = panels(1, len(DOMAINS), (10, 4.2))
    look = looks({family.run: family.look for family in view.part.families})
    rows = {row.run: row for row in view.rows}
    for axes, (domain_view, metric) in zip(panel_axes, _domain_views(view), strict=True):
        points = []
        for family in view.part.families:
            for run in family.members:
                tokens = defined(view.trained(rows[run])[0], "tokens")
                losses = [metric.value(result) for result in domain_view.evaluated(rows[run])]
                if None not in losses:  # no mean over only the seeds that did not diverge
                    points += [
                        Point(family.run, tokens, loss) for loss in losses if loss is not None
                    ]
        lines(axes, points, look, marks=4.5)
        round_log_ticks(axes, lambda x, _: count(x))
        tidy(axes, x="tokens of adaptation", y="loss, nats", title=metric.header.removesuffix(" ↓"))
    legend_below(figure, row_signs(view.part.families, look, mark=4.5))
    return figure


def _points(axes: Axes, view: View[Options]) -> None:
    table = section(view)
    cells = [[table.cell(row.run, metric.id) for metric in DOMAINS] for row in view.rows]
    points = [
        Point(target.row, target.value, source.value)
        for target, source in cells
        if target and source and target.value is not None and source.value is not None
    ]
    lines(axes, points, view.look, marks=6, lw=0)
