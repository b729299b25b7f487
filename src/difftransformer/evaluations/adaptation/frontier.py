"""Target loss against source loss over learning rates: a table, curves, and equal source loss.

At a single rate, methods that learn less of the target also forget less of the source. So methods
are compared at the same source loss: per seed the middle of the range that all methods reach, with
linear interpolation between two rates of a method.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.evaluations.adaptation.settings import Options
from difftransformer.reporting.cells import (
    DIFFERENCE_SUFFIX,
    UNDEFINED,
    CellKey,
    mean_cell,
    paired_differences,
    seed_values,
)
from difftransformer.reporting.charts import Point, draw_lines
from difftransformer.reporting.document import Cell, Column, Section, SeedValue
from difftransformer.reporting.drawing import Axes
from difftransformer.reporting.number_format import format_learning_rate, format_number
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, fine_tuned_sizes, make_section

DECIMALS = 3
DOMAINS = (
    MetricColumn("target", "Target text ↓", "loss", show_difference=True),
    MetricColumn("source", "Source text ↓", "loss", show_difference=True),
)
AT_EQUAL = MetricColumn("target_at_equal_source", "Target text at equal source loss ↓")
Losses = tuple[float, float]
"""Target and source loss of one training."""
SweepCells = list[tuple[Cell, Cell]]
"""Cells of a row by ascending learning rate: target loss and source loss."""


def by_rate(context: SectionContext[Options]) -> Section:
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


def draw_frontier(axes: Axes, context: SectionContext[Options]) -> None:
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
            axes.annotate(
                format_learning_rate(lr),
                (point.x, point.y),
                (4, 4),
                textcoords="offset points",
                fontsize=7,
            )
        points += [point for point, _ in curve]
    draw_lines(axes, points, context.styles, marker_size=6, sort=False, estimator=None)


def shared_source_loss(curves: Sequence[Sequence[Losses]]) -> float | None:
    """Return the middle of the range of source losses that all curves reach; None if empty."""
    if not all(curves):
        return None
    low = max(min(source for _, source in curve) for curve in curves)
    high = min(max(source for _, source in curve) for curve in curves)
    return (low + high) / 2 if low <= high else None


def target_loss_at(curve: Sequence[Losses], source_loss: float) -> float | None:
    """Return the lowest target loss of a curve at a source loss; None if it never has that loss."""
    targets = [target for target, source in curve if source == source_loss]
    for (target, source), (next_target, next_source) in pairwise(curve):
        if min(source, next_source) < source_loss < max(source, next_source):
            fraction = (source_loss - source) / (next_source - source)
            targets.append(target + (next_target - target) * fraction)
    return min(targets, default=None)


def _sweep_cells(context: SectionContext[Options], row: RowSlice) -> SweepCells:
    def cell(run: str, lr: float, domain: int) -> Cell:
        suite, metric = context.section.suites[domain], DOMAINS[domain]
        results = [context.results.evaluation(suite, run, seed) for seed in context.seeds]
        by_seed = [(result, metric.value(result)) for result in results]
        values = seed_values(by_seed, DECIMALS, terms=metric.terms)
        return mean_cell(
            CellKey(row.run, f"{metric.id}@{format_learning_rate(lr)}"),
            values,
            DECIMALS,
            context.published,
        )

    return [
        (cell(entry.run_id, entry.learning_rate, 0), cell(entry.run_id, entry.learning_rate, 1))
        for entry in context.sweep_rows(row)
    ]


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
