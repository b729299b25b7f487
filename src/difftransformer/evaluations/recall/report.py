"""Key-value retrieval: share of seeds that learn it, tokens to learn, accuracy by N, curves."""

import math
from bisect import bisect_right
from collections.abc import Callable
from functools import partial

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.errors import UserError
from difftransformer.evaluations.recall.settings import AT_BUDGET, Options, accuracy_metric
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import (
    DIFFERENCE_SUFFIX,
    CellKey,
    PublishedValues,
    censored_cells,
    mean_cell,
    paired_differences,
    proportion_cell,
    seed_values,
)
from difftransformer.reporting.charts import Point, draw_lines, seed_points
from difftransformer.reporting.collect import get_metric, require_metric
from difftransformer.reporting.document import Cell, Column, Section, SeedValue
from difftransformer.reporting.drawing import (
    FAINT,
    INK,
    SOFT,
    Axes,
    Figure,
    RowStyle,
    escape_label,
    label_axes,
    legend_below,
    legend_handle,
)
from difftransformer.reporting.number_format import format_count, format_number
from difftransformer.reporting.panels import (
    axes_per_row,
    row_legend,
    set_log_ticks,
    stacked_subfigures,
)
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, make_section, metric_cells, row_facts
from difftransformer.reporting.statistics import survival
from difftransformer.reporting.table_notes import shared_setting

_DECIMALS = 2
_PANELS = 4
_GUESS = RowStyle(INK, (2, 2), "")
_X_OFFSET = 0.022  # octaves between neighboring rows, so that equal curves do not overlap
_Y_OFFSET = 0.008  # the same, in shares
_UNITS: dict[str, Callable[[float], str]] = {
    "tokens": format_count,
    "steps": partial(format_number, decimals=0),
}
"""Unit of the time to learn retrieval -> function that formats it."""
_CSV_SUFFIXES = {
    "tokens": ("_min", "_max", "_censored"),
    "steps": ("", "_min", "_max", "_censored"),
}
"""Unit of time -> suffixes of its columns that only the csv has."""


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of times to learn retrieval, and of accuracies by pairs per row."""
    pair_counts, facts = context.suite.needles, row_facts(context)
    metrics = [MetricColumn(accuracy_metric(n), f"N = {n} ↑") for n in pair_counts]
    accuracies = [
        *_budget_columns(context),
        *(Column(id=metric.id, header=metric.header) for metric in metrics),
    ]
    columns = [
        *facts.columns,
        Column(id="learned", header="Seeds that learn ↑"),
        Column(id="tokens_to_learn", header="Tokens to learn ↓"),
        Column(id="tokens_to_learn_mean", header="Restricted mean ↓"),
        *(
            Column(id=f"{unit}_to_learn{suffix}", header=f"{unit}{suffix}", csv_only=True)
            for unit, suffixes in _CSV_SUFFIXES.items()
            for suffix in suffixes
        ),
        *accuracies,
    ]
    if context.has_baselines:
        columns += [
            Column(id=column.id + DIFFERENCE_SUFFIX, header=f"Δ {column.header}", csv_only=True)
            for column in accuracies
        ]
    horizon = _horizon(context)
    measured = metric_cells(context, metrics, _DECIMALS, context.published)
    if context.options.budget is not None:
        measured += [_at_budget(context, row, context.options.budget) for row in context.rows]
    names = [column.id for column in accuracies]
    cells = [
        *facts.cells,
        *(cell for row in context.rows for cell in _times_and_share(context, row, horizon)),
        *measured,
        *paired_differences(context.rows, names, measured, _DECIMALS),
    ]
    return make_section(context, columns, cells, [*facts.notes, *_notes(context, horizon)])


def figure(context: SectionContext[Options]) -> Figure:
    """Draw accuracy by pairs per row, times to learn retrieval, and models' learning curves."""
    below = -(-len(context.rows) // _PANELS)
    heights = (3.6, 1.5 * below + 0.2)
    figure, top, bottom = stacked_subfigures((11, sum(heights)), heights, 0.04)
    left, right = top.subplots(1, 2)
    _by_needles(left, context)
    _times_to_learn(right, context)
    handles = [legend_handle("guessing, 1/N", _GUESS, line_width=1, marker_size=0)]
    legend_below(top, [*handles, *row_legend(context.rows, context.styles, marker_size=4.5)])
    probe = shared_setting(context.train_results(), "training", "probe")
    for index, (axes, row, lowest) in enumerate(axes_per_row(bottom, context.rows, _PANELS)):
        _learning(axes, context, row, probe)
        axes.set_xlabel("training tokens" if lowest else "")
        if index % _PANELS:
            axes.set_ylabel("")
    return figure


def _times_and_share(
    context: SectionContext[Options], row: ResolvedRow, horizon: float | None
) -> list[Cell]:
    learned = [(result, get_metric(result, "learned")) for result in context.train_results(row)]
    cells = [proportion_cell(CellKey(row.run, "learned"), seed_values(learned, 0))]
    for unit, write in _UNITS.items():
        key, times = CellKey(row.run, f"{unit}_to_learn"), _times(context, unit, row)
        cells += censored_cells(key, times, write, "learn")
        if unit == "tokens":
            cells.append(_restricted_mean(key, times, horizon))
    return cells


def _times(context: SectionContext[Options], unit: str, *rows: ResolvedRow) -> list[SeedValue]:
    """Return the time to learn retrieval by seed, in a unit; censored at the end of training."""
    times = []
    for result in context.train_results(*rows):
        step, steps = get_metric(result, "steps_to_learn"), require_metric(result, "steps")
        end = require_metric(result, unit)
        probe_every = result.settings["training"]["probe"]["every"]
        time, beyond = (None, end) if step is None else (end * step / steps, None)
        after = None if step is None else end * max(step - probe_every, 0) / steps
        text = f"> {_UNITS[unit](end)}" if time is None else _UNITS[unit](time)
        times.append(
            SeedValue(
                seed=result.seed,
                value=time,
                censored_at=beyond,
                lower_bound=after,
                text=text,
                job_ids=[result.job_id],
            )
        )
    return times


def _horizon(context: SectionContext[Options]) -> float | None:
    """Return the shortest training without retrieval in tokens, or None if all seeds learned."""
    ends = (time.censored_at for time in _times(context, "tokens"))
    return min((end for end in ends if end is not None), default=None)


def _restricted_mean(key: CellKey, times: list[SeedValue], horizon: float | None) -> Cell:
    """Return the mean time with a seed without retrieval counted as the horizon.

    It is the area below the Kaplan-Meier curve up to the horizon, as no seed is censored earlier.
    """
    limit = math.inf if horizon is None else horizon
    limited = [
        time.model_copy(update={"value": limit if time.value is None else min(time.value, limit)})
        for time in times
    ]
    cell = mean_cell(CellKey(key.row, f"{key.column}_mean"), limited, 0, PublishedValues(None))
    if cell.value is None:
        return cell
    text = format_count(cell.value)
    if cell.ci_low is not None and cell.ci_high is not None:
        text += f" ± {format_count((cell.ci_high - cell.ci_low) / 2)}"
    return cell.model_copy(update={"text": text})


def _budget_columns(context: SectionContext[Options]) -> list[Column]:
    """Return the column of accuracy at the budget, if the section has a budget."""
    budget = context.options.budget
    if budget is None:
        return []
    probe = shared_setting(context.train_results(), "training", "probe")
    return [
        Column(
            id=AT_BUDGET, header=f"N = {probe['learned_needles']}, {format_count(budget)} tokens ↑"
        )
    ]


def _at_budget(context: SectionContext[Options], row: ResolvedRow, budget: int) -> Cell:
    """Return the mean accuracy at the last probe within a budget of training tokens.

    Raises:
        UserError: A training has no probe within the budget.
    """
    accuracies = list[tuple[Result, float | None]]()
    for result in context.train_results(row):
        needles = result.settings["training"]["probe"]["learned_needles"]
        series = context.results.histories.series(row.run, result.seed, accuracy_metric(needles))
        probes = bisect_right(series.tokens, budget)
        if not probes:
            raise UserError(
                f"{result.job_id}: no probe within the budget of {format_count(budget)} tokens; "
                "probe more often, or raise `budget` in the artifact's options"
            )
        accuracies.append((result, series.values[probes - 1]))
    seeds = seed_values(accuracies, _DECIMALS)
    return mean_cell(CellKey(row.run, AT_BUDGET), seeds, _DECIMALS, context.published)


def _notes(context: SectionContext[Options], horizon: float | None) -> list[str]:
    trained, suite = context.train_results(), context.suite
    probe = shared_setting(trained, "training", "probe")
    counted = (
        "all seeds learned"
        if horizon is None
        else f"a seed that has not learned after {format_count(horizon)} tokens counts as "
        f"{format_count(horizon)}, the shortest training of a seed that does not learn"
    )
    notes = [
        "A seed has learned retrieval at the first probe with an accuracy of at least "
        f"{probe['learned_threshold']} at N = {probe['learned_needles']} pairs; probes are "
        f"{probe['every']} steps apart. Seeds without retrieval are censored at the end of "
        "their training. Share: Wilson's 95% interval. Tokens to learn: median of the Kaplan-Meier "
        "curve (smallest to largest over the seeds that learn); steps are in the csv. Restricted "
        f"mean: mean tokens over seeds; {counted}.",
        f"Accuracy: share of correct answers among the whole vocabulary, {suite.queries} queries "
        f"in each of {suite.samples} rows per N; guessing among the values of a row gives 1/N.",
        context.training_note(),
    ]
    if context.options.budget is not None:
        notes.append(
            f"N = {probe['learned_needles']}, {format_count(context.options.budget)} tokens: "
            "accuracy of the last probe within this budget, or at the end of a shorter training; "
            f"{probe['queries']} queries in each of {probe['samples']} rows."
        )
    if context.has_baselines:
        notes.append(
            f"The csv also has paired differences of accuracy: {context.difference_formula()}."
        )
    return notes


def _by_needles(axes: Axes, context: SectionContext[Options]) -> None:
    pair_counts, styles = context.suite.needles, context.styles
    axes.plot(pair_counts, [1 / n for n in pair_counts], color=INK, lw=1, ls=(0, _GUESS.dash))
    for index, row in enumerate(context.rows):
        offset = 2 ** (_X_OFFSET * (index - (len(context.rows) - 1) / 2))
        results = context.eval_results(row)
        values = [[require_metric(r, accuracy_metric(n)) for n in pair_counts] for r in results]
        points = seed_points(row.run, [n * offset for n in pair_counts], values)
        draw_lines(axes, points, styles, marker_size=4.5)
    set_log_ticks(axes, pair_counts, list(map(str, pair_counts)), base=2)
    axes.set_ylim(0, 1.04)
    label_axes(axes, x="pairs in the row, N", y="accuracy", title="Accuracy after training")


def _times_to_learn(axes: Axes, context: SectionContext[Options]) -> None:
    """Draw the Kaplan-Meier curve of each model, with a tick at censored seeds."""
    for index, row in enumerate(context.rows):
        seeds, style = _times(context, "tokens", row), context.styles[row.run]
        censored = [seed.censored_at for seed in seeds if seed.censored_at is not None]
        curve = survival([seed.value for seed in seeds if seed.value is not None], censored)
        offset = _Y_OFFSET * ((len(context.rows) - 1) / 2 - index)
        share_at = {0.0: 1 + offset, **dict(zip(curve.times, curve.shares + offset, strict=True))}
        points = [Point(row.run, time, share) for time, share in share_at.items()]
        draw_lines(axes, points, context.styles, drawstyle="steps-post", estimator=None)
        axes.plot(censored, [share_at[time] for time in censored], "|", color=style.color, ms=8)
    axes.set_ylim(-0.04, 1.04)
    label_axes(
        axes, x="training tokens", y="share of seeds", title="Seeds that have not learned retrieval"
    )
    axes.xaxis.set_major_formatter(lambda tokens, _: format_count(tokens))


def _learning(
    axes: Axes, context: SectionContext[Options], row: ResolvedRow, probe: dict[str, float]
) -> None:
    """Draw probe accuracy by tokens: a line per seed, a dot where it has learned retrieval."""
    needles, threshold = int(probe["learned_needles"]), probe["learned_threshold"]
    axes.axhline(threshold, color=FAINT, lw=1.2)
    axes.axhline(1 / needles, color=INK, lw=0.8, ls=(0, _GUESS.dash))
    points, learned = [], []
    for seed, result in zip(context.seeds, context.train_results(row), strict=True):
        series = context.results.histories.series(row.run, seed, accuracy_metric(needles))
        curve = [
            Point(row.run, x, y, seed) for x, y in zip(series.tokens, series.values, strict=True)
        ]
        points += curve
        step = get_metric(result, "steps_to_learn")
        if step is not None:
            learned.append(curve[series.steps.index(int(step))])
    styles = {row.run: context.styles[row.run]._replace(dash=(), marker="o")}
    draw_lines(axes, points, styles, units="seed", estimator=None, lw=1.0, alpha=0.85)
    draw_lines(axes, learned, styles, estimator=None, marker_size=4.5, lw=0, mec="white", mew=0.8)
    label_axes(axes, x="", y=f"accuracy, N = {needles}")
    axes.xaxis.set_major_formatter(lambda tokens, _: format_count(tokens))
    axes.locator_params("x", nbins=4)
    axes.set_title(escape_label(row.label, 30), fontsize=8.5, pad=6)
    axes.text(
        0.98, 0.5, f"{len(learned)}/{len(context.seeds)} learn", transform=axes.transAxes,
        ha="right", va="center", color=SOFT, fontsize=8,
    )  # fmt: skip
    axes.set_ylim(0, 1.04)
