"""Target and source loss of adapted models: a table, and curves over learning rates or tokens.

At a single learning rate, methods that learn less of the target also forget less of the source. So
methods are compared at equal source loss: for each seed the middle of the range that all methods
reach, with linear interpolation between two rates of a method.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from difftransformer.config.resolved_artifacts import ResolvedRow, SweepRow
from difftransformer.evaluations.adaptation.settings import Options
from difftransformer.reporting.cells import (
    DIFFERENCE_SUFFIX,
    UNDEFINED,
    CellKey,
    mean_cell,
    paired_differences,
)
from difftransformer.reporting.charts import Point, draw_lines
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Cell, Column, Section, SeedValue
from difftransformer.reporting.drawing import Axes, Figure, label_axes, legend_below, row_styles
from difftransformer.reporting.number_format import (
    format_count,
    format_learning_rate,
    format_number,
)
from difftransformer.reporting.panels import row_legend, set_decade_ticks, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import (
    MetricColumn,
    fine_tuned_sizes,
    make_section,
    metric_cells,
)

DECIMALS = 3
DOMAINS = (
    MetricColumn("target", "Target text ↓", "loss", show_difference=True),
    MetricColumn("source", "Source text ↓", "loss", show_difference=True),
)
AT_EQUAL = MetricColumn("target_at_equal_source", "Target text at equal source loss ↓")
Losses = tuple[float, float]
"""Target loss and source loss of one training run."""
SweepCells = list[tuple[Cell, Cell]]
"""Cells of a row by ascending learning rate: target loss and source loss."""


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of target and source losses by model, or also by learning rate."""
    return _by_rate(context) if context.options.swept else _by_run(context)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw target against source loss of each model, or both losses over adaptation tokens."""
    if context.options.by == "tokens":
        return _by_tokens(context)
    figure, ((axes,),) = subplot_grid(1, 1, (8, 5.6))
    (_draw_frontier if context.options.swept else _points)(axes, context)
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
    """Draw a panel per domain: losses of each row's recipes over the tokens of their adaptation."""
    figure, (panel_axes,) = subplot_grid(1, len(DOMAINS), (10, 4.2))
    styles = row_styles({grid_row.run: grid_row.color for grid_row in context.section.grid_rows})
    rows = {row.run: row for row in context.rows}
    for axes, (domain_view, metric) in zip(panel_axes, _domain_views(context), strict=True):
        points = []
        for grid_row in context.section.grid_rows:
            for run in grid_row.members:
                tokens = require_metric(context.train_results(rows[run])[0], "tokens")
                losses = [metric.value(result) for result in domain_view.eval_results(rows[run])]
                finite = [loss for loss in losses if loss is not None]
                if len(finite) == len(losses):  # a mean without the diverged seeds would be too low
                    points += [Point(grid_row.run, tokens, loss) for loss in finite]
        draw_lines(axes, points, styles, marker_size=4.5)
        set_decade_ticks(axes, lambda x, _: format_count(x))
        label_axes(
            axes, x="tokens of adaptation", y="loss, nats", title=metric.header.removesuffix(" ↓")
        )
    legend_below(figure, row_legend(context.section.grid_rows, styles, marker_size=4.5))
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


def _by_rate(context: SectionContext[Options]) -> Section:
    """Build the section: losses of every row at every rate, and at equal source loss."""
    sizes = fine_tuned_sizes(context)
    columns = [
        Column(
            id=f"{domain.id}@{format_learning_rate(lr)}",
            header=f"{domain.header.removesuffix(' ↓')}, lr {format_learning_rate(lr)}",
        )
        for lr in context.learning_rates
        for domain in DOMAINS
    ]
    rows = {row.run: _sweep_cells(context, row) for row in context.rows}
    equal = _equal_source_cells(context, rows)
    columns.append(Column(id=AT_EQUAL.id, header=AT_EQUAL.header))
    if context.has_baselines:
        columns.append(Column(id=AT_EQUAL.id + DIFFERENCE_SUFFIX, header=f"Δ {AT_EQUAL.header}"))
        equal += paired_differences(context.rows, [AT_EQUAL.id], equal, DECIMALS)
    notes = [
        "Every method has the same number of rates. Equal source loss: per seed the middle of the "
        "range that all rows reach, with linear interpolation between two rates."
    ]
    notes += context.difference_note()
    cells = [cell for points in rows.values() for pair in points for cell in pair]
    return make_section(
        context, [*sizes.columns, *columns], [*sizes.cells, *cells, *equal], [*sizes.notes, *notes]
    )


def _draw_frontier(axes: Axes, context: SectionContext[Options]) -> None:
    """Draw each row's curve in the plane of both losses, with its first and last rate as labels."""
    points = []
    for row in context.rows:
        curve = [
            (Point(row.run, target.value, source.value), entry.learning_rate)
            for (target, source), entry in zip(
                _sweep_cells(context, row), context.sweep_rows(row), strict=True
            )
            if target.value is not None and source.value is not None
        ]
        for point, lr in (*curve[:1], *curve[-1:]):
            position, label = (point.x, point.y), format_learning_rate(lr)
            axes.annotate(label, position, (4, 4), textcoords="offset points", fontsize=7)
        points += [point for point, _ in curve]
    draw_lines(axes, points, context.styles, marker_size=6, sort=False, estimator=None)


def shared_source_loss(curves: Sequence[Sequence[Losses]]) -> float | None:
    """Return the middle of the range of source losses that all curves reach, or None.

    A curve is the (target loss, source loss) of one method at each learning rate. The result is
    None if a curve is empty or no source loss is common to all.
    """
    if not all(curves):
        return None
    low = max(min(source for _, source in curve) for curve in curves)
    high = min(max(source for _, source in curve) for curve in curves)
    return (low + high) / 2 if low <= high else None


def target_loss_at(curve: Sequence[Losses], source_loss: float) -> float | None:
    """Return a curve's lowest target loss at a given source loss, or None if no point has it.

    The curve, (target loss, source loss) of one method by learning rate, is interpolated linearly.
    """
    targets = [target for target, source in curve if source == source_loss]
    for (target, source), (next_target, next_source) in pairwise(curve):
        if min(source, next_source) < source_loss < max(source, next_source):
            fraction = (source_loss - source) / (next_source - source)
            targets.append(target + (next_target - target) * fraction)
    return min(targets, default=None)


def _sweep_cells(context: SectionContext[Options], row: ResolvedRow) -> SweepCells:
    def cell(entry: SweepRow, domain: int) -> Cell:
        suite, metric = context.section.suites[domain], DOMAINS[domain]
        metric = replace(metric, id=f"{metric.id}@{format_learning_rate(entry.learning_rate)}")
        results = [context.results.evaluation(suite, entry.run_id, seed) for seed in context.seeds]
        return metric.cell(row.run, results, DECIMALS, context.published)

    return [(cell(entry, 0), cell(entry, 1)) for entry in context.sweep_rows(row)]


def _equal_source_cells(
    context: SectionContext[Options], rows: Mapping[str, SweepCells]
) -> list[Cell]:
    """Return a cell for each row: the target loss at equal source loss, by seed."""
    values: dict[str, list[SeedValue]] = {run: [] for run in rows}
    for index, seed in enumerate(context.seeds):
        curves = {run: _curve(points, index) for run, points in rows.items()}
        level = shared_source_loss(list(curves.values()))
        for run, curve in curves.items():
            value = None if level is None else target_loss_at(curve, level)
            jobs = [cell.seeds[index].job_ids for pair in rows[run] for cell in pair]
            values[run].append(
                SeedValue(
                    seed=seed,
                    value=value,
                    text=UNDEFINED if value is None else format_number(value, DECIMALS),
                    job_ids=sorted(job for ids in jobs for job in ids),
                )
            )
    return [
        mean_cell(CellKey(run, AT_EQUAL.id), seeds, DECIMALS, context.published)
        for run, seeds in values.items()
    ]


def _curve(points: SweepCells, index: int) -> list[Losses]:
    """Return both losses of a row for one seed, by rate, where both exist."""
    losses = [(target.seeds[index].value, source.seeds[index].value) for target, source in points]
    return [
        (target, source) for target, source in losses if target is not None and source is not None
    ]
