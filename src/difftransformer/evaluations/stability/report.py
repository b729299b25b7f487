"""Tables and figure of training stability: spikes and divergence, by learning rate or run."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.errors import UserError
from difftransformer.evaluations.stability.settings import THRESHOLD, WINDOW, Options
from difftransformer.evaluations.stability.spikes import (
    METRICS,
    SPIKES,
    ByRate,
    Stability,
    by_rate,
    stability_of,
)
from difftransformer.reporting.cells import (
    DIFFERENCE_SUFFIX,
    CellKey,
    PublishedValues,
    mean_cell,
    paired_differences,
    proportion_cell,
    seed_values,
)
from difftransformer.reporting.charts import (
    HOLLOW_STYLE,
    MIN_MAX_BAND,
    Point,
    draw_lines,
    mean_points,
)
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import Axes, Figure, RowStyle, label_axes, legend_below
from difftransformer.reporting.number_format import format_learning_rate
from difftransformer.reporting.panels import row_legend, set_log_ticks, stacked_subfigures
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import make_section
from difftransformer.reporting.table_notes import format_range

LARGE = "_large"
"""Suffix of the ids of columns with means over large learning rates, see `_large_rates`."""
_COLLAPSED = 95.0  # % of steps that are spikes: a training that diverges almost at once
_PERCENT, _NATS = 2, 3
_UNITS = {
    "loss_spikes": "% of steps",
    "gradient_spikes": "% of steps",
    "diverged": "fraction of seeds",
    "final_loss": "nats per token",
}
_CURVES = {"loss": "training loss, nats", "grad_norm": "gradient norm before clipping"}


def section(context: SectionContext[Options]) -> Section | list[Section]:
    """Return the report section of models at their own learning rates, or sections of a sweep."""
    return _sweep_sections(context) if context.options.swept else _run_section(context)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw each stability metric by learning rate, and the training curves at the largest rate."""
    rates, styles = context.learning_rates, context.styles
    trained = {row.run: by_rate(context, row) for row in context.rows}
    fig, top, bottom = stacked_subfigures((12, 6.8))
    for axes, (kind, title) in zip(top.subplots(1, len(METRICS)), METRICS.items(), strict=True):
        for row in context.rows:
            _by_rate(axes, kind, row.run, trained[row.run], styles)
        set_log_ticks(axes, rates, list(map(format_learning_rate, rates)), rotation=45)
        label_axes(axes, x="peak learning rate", y=_UNITS[kind], title=title)
    for axes, column in zip(bottom.subplots(1, len(_CURVES)), _CURVES, strict=True):
        for row in context.rows:
            _curves_at_largest_rate(axes, context, row, column)
        axes.set_yscale("log")
        label_axes(
            axes,
            x="step",
            y=_CURVES[column],
            title=f"At {format_learning_rate(rates[-1])}, one line per seed",
        )
    legend_below(fig, row_legend(context.rows, styles, marker_size=4))
    return fig


def _sweep_sections(context: SectionContext[Options]) -> list[Section]:
    """Return one section per metric: rows are models, columns are learning rates."""
    by_run = {row.run: by_rate(context, row) for row in context.rows}
    collapsed = _collapsed_rates(by_run)
    large, sections = _large_rates(context, collapsed), []
    for name, title in METRICS.items():
        columns = [
            Column(id=f"{name}@{format_learning_rate(lr)}", header=f"lr {format_learning_rate(lr)}")
            for lr in context.learning_rates
        ]
        cells = [
            _cell(CellKey(row.run, f"{name}@{format_learning_rate(lr)}"), name, trained)
            for row in context.rows
            for lr, trained in by_run[row.run].items()
        ]
        if name in SPIKES:
            columns += [
                Column(id=name + LARGE, header="large rates ↓"),
                Column(id=name + LARGE + DIFFERENCE_SUFFIX, header="Δ large rates"),
            ]
            means = [
                _mean_over_rates(
                    CellKey(row.run, name + LARGE), name, by_run[row.run], large[row.run]
                )
                for row in context.rows
            ]
            cells += means + paired_differences(context.rows, [name + LARGE], means, _PERCENT)
        sections.append(make_section(context, columns, cells, title=title))
    trained = [seed for rates in by_run.values() for seeds in rates.values() for seed in seeds]
    steps = [require_metric(seed.result, "planned_steps") for seed in trained]
    sizes = [require_metric(seed.result, "non_embedding_parameters") for seed in trained]
    notes = [
        *_definitions(),
        *context.difference_note(),
        f"Training: {format_range(steps)} steps per run; {format_range(sizes)} parameters without "
        "embeddings.",
        f"Large rates: mean over the rates from {format_learning_rate(min(min(large.values())))} "
        "on."
        + (
            " Left out, as every model diverges at once: "
            f"{', '.join(map(format_learning_rate, collapsed))}."
            if collapsed
            else ""
        ),
    ]
    sections[0] = sections[0].model_copy(update={"notes": notes})
    return sections


def _run_section(context: SectionContext[Options]) -> Section:
    """Return the section of models at their own learning rates; columns are the metrics."""
    cells = [
        _cell(CellKey(row.run, name), name, trained)
        for row in context.rows
        for trained in [stability_of(context.results, row.run, context.seeds)]
        for name in METRICS
    ]
    compared = [name for name in METRICS if name != "diverged"]
    columns = [Column(id=name, header=f"{header} ↓") for name, header in METRICS.items()]
    columns += [
        Column(
            id=name + DIFFERENCE_SUFFIX, header=f"Δ {METRICS[name]}", csv_only=name == "final_loss"
        )
        for name in compared
    ]
    cells += paired_differences(context.rows, compared, cells, _PERCENT)
    notes = [*_definitions(), context.training_note(), *context.difference_note()]
    return make_section(context, columns, cells, notes)


def _cell(key: CellKey, name: str, trained: Sequence[Stability]) -> Cell:
    """Return the cell of a metric of one row at one learning rate, over its seeds."""
    decimals = _NATS if name == "final_loss" else _PERCENT
    values = [(seed.result, seed.values[name]) for seed in trained]
    seeds = seed_values(values, decimals, undefined_text="diverged")
    if name == "diverged":
        return proportion_cell(key, seeds)
    cell = mean_cell(key, seeds, decimals, PublishedValues(None))
    if name == "final_loss" and cell.n < len(trained):
        text = "diverged" if not cell.n else f"{cell.text} ({len(trained) - cell.n} diverged)"
        return cell.model_copy(update={"text": text})
    return cell


def _mean_over_rates(key: CellKey, name: str, trained: ByRate, rates: Sequence[float]) -> Cell:
    """Return the cell of a metric's mean over rates, by seed, with the jobs of all rates."""
    seeds = []
    for of_seed in zip(*(trained[lr] for lr in rates), strict=True):
        values = [value for run in of_seed if (value := run.values[name]) is not None]
        assert len(values) == len(of_seed), key
        (seed,) = seed_values([(of_seed[0].result, fmean(values))], _PERCENT)
        jobs = [run.result.job_id for run in of_seed]
        seeds.append(seed.model_copy(update={"job_ids": jobs}))
    return mean_cell(key, seeds, _PERCENT, PublishedValues(None))


def _collapsed_rates(by_run: Mapping[str, ByRate]) -> list[float]:
    """Return the learning rates at which nearly all steps of all runs are spikes."""
    rates = set.intersection(*({*trained} for trained in by_run.values()))
    return sorted(
        lr
        for lr in rates
        if all(
            (value := seed.values[name]) is not None and value >= _COLLAPSED
            for trained in by_run.values()
            for seed in trained[lr]
            for name in SPIKES
        )
    )


def _large_rates(
    context: SectionContext[Options], collapsed: Sequence[float]
) -> dict[str, list[float]]:
    """Return the rates of each row from its configured one on, without the collapsed ones.

    If all of them are collapsed, all are kept.
    """
    by_run = {}
    for row in context.rows:
        swept = context.sweep_rows(row)
        configured = next((entry.learning_rate for entry in swept if entry.chosen), None)
        if configured is None:
            raise UserError(
                f"{row.run}: the sweep {[entry.learning_rate for entry in swept]} lacks the run's "
                "own learning rate: add it to the grid in the scale's file"
            )
        large = [entry.learning_rate for entry in swept if entry.learning_rate >= configured]
        by_run[row.run] = [lr for lr in large if lr not in collapsed] or large
    return by_run


def _definitions() -> list[str]:
    return [
        f"Spikes, in % of steps: steps whose loss, or gradient norm before clipping, exceeds the "
        f"median of the {WINDOW} steps before by more than {THRESHOLD:g} robust standard "
        "deviations (1.4826 median absolute deviations). Every step after a divergence counts.",
        "A run diverges at the first step with a loss or gradient that is not finite, or with a "
        "loss above training.divergence_loss after warmup.",
    ]


def _by_rate(axes: Axes, name: str, run: str, trained: ByRate, styles: dict[str, RowStyle]) -> None:
    """Draw the mean over seeds with a value, with their range (a fraction of seeds has none).

    A diverged seed has no final loss: the mean of the others gets a hollow mark.
    """
    points = [
        Point(run, learning_rate, value)
        for learning_rate, seeds in trained.items()
        for seed in seeds
        if (value := seed.values[name]) is not None
    ]
    partial = {x for x, seeds in trained.items() if any(s.values[name] is None for s in seeds)}
    draw_lines(
        axes, points, styles, marker_size=4, errorbar=None if name == "diverged" else MIN_MAX_BAND
    )
    fewer = [point for point in mean_points(points) if point.x in partial]
    draw_lines(axes, fewer, styles, marker_size=4, lw=0, **HOLLOW_STYLE)


def _curves_at_largest_rate(
    axes: Axes, context: SectionContext[Options], row: ResolvedRow, column: str
) -> None:
    """Draw the training curve of every seed at the largest rate, up to where it diverges."""
    largest, histories = context.sweep_rows(row)[-1], context.results.histories
    curves = [histories.series(largest.run_id, seed, column) for seed in context.seeds]
    points = [
        Point(row.run, step, value, seed)
        for seed, curve in enumerate(curves)
        for step, value in zip(curve.steps, curve.values, strict=True)
    ]
    draw_lines(axes, points, context.styles, units="seed", estimator=None, lw=0.9, alpha=0.8)
