"""Table and forest plot of the cost and scores of each attention variant."""

from typing import NamedTuple

import numpy as np

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.config.timing import TRAINED_SIZES
from difftransformer.evaluations.variants.settings import Options
from difftransformer.reporting.cells import (
    DIFFERENCE_SUFFIX,
    CellKey,
    PublishedValues,
    fact_cell,
    mean_cell,
    paired_differences,
    seed_values,
)
from difftransformer.reporting.charts import (
    cell_estimates,
    draw_estimates,
    seed_legend,
    select_cells,
)
from difftransformer.reporting.collect import get_metric
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import (
    INK,
    Figure,
    RowStyle,
    escape_label,
    label_axes,
    legend_below,
    legend_handle,
)
from difftransformer.reporting.number_format import format_count, format_number
from difftransformer.reporting.panels import subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import make_section
from difftransformer.reporting.timing_rounds import TimingResults

_FACTS = {
    "parameters": "Parameters",
    "ffn_dim": "FFN",
    "kv_bytes": "KV bytes per token",
    "training_flops": "Training FLOPs per token",
}
SPEED_RATIO = "speed_ratio"
_SPEEDS = {"speed": "Training tokens/s ↑", SPEED_RATIO: "Speed, ratio ↑"}


class Panel(NamedTuple):
    """A panel of the figure: its title, its unit, and the value of no difference, or None."""

    title: str
    unit: str
    reference: float | None


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of cost and scores; a row shows a run and its paired run."""
    scores = context.options.scores
    cells = [cell for row in context.rows for cell in _row_cells(context, row)]
    speeds, timing_notes = _speeds(context)
    headers = _FACTS | (_SPEEDS if speeds else {})
    headers |= {name: score.header for name, score in scores.items()}
    for name, score in scores.items():
        if score.compared:
            cells += paired_differences(context.rows, [name], cells, score.decimals)
            headers[name + DIFFERENCE_SUFFIX] = f"Δ {score.name}"
    columns = [Column(id=name, header=header) for name, header in headers.items()]
    return make_section(context, columns, [*cells, *speeds], [*_notes(context), *timing_notes])


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the variants' scores, one panel per column; marks of later sections are hollow."""
    sections = [section(part) for part in context.sibling_contexts]
    panels = _panels(context.options, {column.id for column in sections[0].columns})
    first_runs = {row.run for row in sections[0].rows}
    labels, styles = dict[str, str](), dict[str, RowStyle]()
    for first, *others in zip(*(table.rows for table in sections), strict=True):
        new_runs = [row.run for row in others if row.run not in first_runs]
        labels |= {first.run: escape_label(first.label, 28)} | dict.fromkeys(new_runs, "")
        styles |= dict.fromkeys((first.run, *new_runs), context.styles[first.run])
    figure, (panel_axes,) = subplot_grid(1, len(panels), (11, 1.4 + 0.3 * len(labels)), sharey=True)
    for axes, (key, panel) in zip(panel_axes, panels.items(), strict=True):
        if panel.reference is not None:
            axes.axvline(panel.reference, color=INK, lw=0.8)
        for number, table in enumerate(sections):
            cells = [c for c in select_cells(table, [key]) if not number or c.row not in first_runs]
            marks = cell_estimates(cells, by="row")
            draw_estimates(axes, marks, styles, labels, along="y", dodge=False, hollow=number > 0)
        label_axes(axes, x=panel.unit, y="", title=panel.title)
    handles = seed_legend(context.seeds)
    handles += [
        legend_handle(table.title, hollow=number > 0) for number, table in enumerate(sections)
    ]
    legend_below(figure, handles)
    return figure


def _row_cells(context: SectionContext[Options], row: ResolvedRow) -> list[Cell]:
    trained, unpublished = context.train_results(row), PublishedValues(None)
    cells = [
        fact_cell(CellKey(row.run, name), row.facts.get(name), trained, unpublished, _format_fact)
        for name in _FACTS
    ]
    for name, score in context.options.scores.items():
        run = row.paired_run if score.of_paired_run else row.run
        assert run is not None, row.run
        results = [context.results.evaluation(score.suite, run, seed) for seed in context.seeds]
        values = seed_values(
            [(result, get_metric(result, score.metric)) for result in results], score.decimals,
            terms={score.metric: 1.0},
        )  # fmt: skip
        cells.append(mean_cell(CellKey(row.run, name), values, score.decimals, unpublished))
    return cells


def _speeds(context: SectionContext[Options]) -> tuple[list[Cell], list[str]]:
    """Return training speeds and notes on timing; empty if the scale times no variants."""
    timing = context.options.timing
    if timing is None or not context.rows[0].facts.get("timed"):
        return [], []
    timings, cells = TimingResults(context.results, timing), []
    shape = timings.calls[TRAINED_SIZES]
    for row in context.rows:
        speeds = timings.fastest(TRAINED_SIZES, row.run, "training")
        cells.append(timings.speed_cell(CellKey(row.run, "speed"), speeds))
        if row.baseline:
            ratios = timings.ratios(TRAINED_SIZES, row.run, row.baseline, "training")
            ratio = float(np.median(ratios))
            cells.append(
                timings.single_cell(CellKey(row.run, SPEED_RATIO), ratio, format_number(ratio, 2))
            )
    return cells, [
        f"Training tokens/s: forward, loss and backward at {shape.label}, batch of "
        f"{shape.batch_size}, {timings.rounds_note('row, backend and mode')} Ratio to "
        f"{' and '.join(context.baseline_labels)}: median of those within rounds. "
        f"{timings.machine_note()}"
    ]


def _format_fact(fact: float) -> str:
    return format_count(fact) if fact >= 10_000 else f"{fact:,.0f}"


def _notes(context: SectionContext[Options]) -> list[str]:
    notes = [
        "KV bytes per token: growth of the caches of all layers, in 16 bits. Training FLOPs: by "
        f"formula, forward and backward, without norms and softmax. {context.options.note}",
        context.training_note(),
    ]
    substitutes = [
        f"{row.run} for {row.paper}" for row in context.rows if row.paper not in (None, row.run)
    ]
    if substitutes:
        notes.append(f"At this scale runs of other sizes are proxies: {', '.join(substitutes)}.")
    return notes + context.difference_note()


def _panels(options: Options, column_ids: set[str]) -> dict[str, Panel]:
    """Return panels by the column they show."""
    panels = {}
    for name, score in options.scores.items():
        if score.panel == "difference":
            panels[name + DIFFERENCE_SUFFIX] = Panel(f"Δ {score.name}", score.unit, 0.0)
        elif score.panel == "value":
            panels[name] = Panel(score.name, score.unit, None)
    panels[SPEED_RATIO] = Panel("Training speed", "tokens/s, ratio, median of rounds", 1.0)
    return {key: panel for key, panel in panels.items() if key in column_ids}
