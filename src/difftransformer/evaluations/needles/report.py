"""Multi-needle retrieval as columns and a picture, by setting [N, R] or by context length."""

from dataclasses import replace

from difftransformer.evaluations.needles import by_length
from difftransformer.evaluations.needles.by_length import several_lengths
from difftransformer.evaluations.needles.settings import Options, accuracy_name, group_name
from difftransformer.provenance.result import Result
from difftransformer.reporting.charts import (
    cell_estimates,
    cell_interval,
    draw_estimates,
    select_cells,
)
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Cell, Section
from difftransformer.reporting.drawing import SOFT, Axes, Figure, label_axes, legend_handle
from difftransformer.reporting.number_format import format_number
from difftransformer.reporting.panels import draw_metric_curves, row_legend, stacked_subfigures
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, metric_section
from difftransformer.reporting.statistics import wilson_interval
from difftransformer.reporting.table_notes import proxy_title

_FORMAT = {
    "recall": "A stand-in for the paper's sentences: needles are keys with values of the builtin "
    "recall corpus in its own haystack; each question is a prompt of its own on the same context.",
    "text": "Needles are English sentences in held-out text, the template LWM's.",
}


def section(context: SectionContext[Options]) -> Section:
    """Make the section; depths have columns in the csv."""
    suite, (needles, asked) = context.suite, context.suite.pairs[0]
    if context.options.by == "setting":
        metrics = _by_setting(context)
        what = "Accuracy: mean share of the needles asked for that are answered."
    else:
        metrics = _by_length(context)
        what = (
            f"N = {needles}, R = {asked}; columns are context lengths in tokens, mean over the "
            "depths."
        )
    notes = [
        f"{_FORMAT[suite.format]} {suite.samples} prompts at each of the depths "
        f"{', '.join(map(str, suite.depths))}% of the first needle asked for; the others stand at "
        f"random places. {what} A cell opens to its seeds, each with Wilson's 95% "
        "interval of its answers, which takes them as independent.",
        context.training_note(),
    ]
    made = metric_section(context.as_proxy(suite.proxy), metrics, decimals=2, notes=notes)
    if context.options.by != "setting":
        return made
    return made.model_copy(update={"cells": [_beside(context, cell) for cell in made.cells]})


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the figure of the first section."""
    if context.options.by == "setting":
        return _settings_figure(context)
    return by_length.figure(context)


def _by_setting(context: SectionContext[Options]) -> list[MetricColumn]:
    """Columns of the settings, of their depths, of the last one, and of its drop from the first."""
    pairs = context.suite.pairs
    columns = [
        one
        for pair in pairs
        for one in _with_depths(context, group_name(pair), f"N = {pair[0]}, R = {pair[1]}", pair)
    ]
    if len(pairs) > 1:
        first, last = accuracy_name(pairs[0]), accuracy_name(pairs[-1])
        span = f"N = {pairs[0][0]} to {pairs[-1][0]}"
        columns.append(MetricColumn("drop", f"Drop, {span} ↓", {first: 1.0, last: -1.0}))
    columns.append(_accuracy("hardest", "Hardest ↑", group_name(pairs[-1]), hidden=True))
    return columns


def _beside(context: SectionContext[Options], cell: Cell) -> Cell:
    """Put what the paper prints for the same settings beside `drop` and `hardest`."""
    first, last = (
        context.published.number(cell.row, group_name(pair))
        for pair in (context.suite.pairs[0], context.suite.pairs[-1])
    )
    value = {"drop": None if first is None or last is None else first - last, "hardest": last}.get(
        cell.column
    )
    if value is None:
        return cell
    return cell.model_copy(
        update={"paper_value": round(value, 6), "paper_text": format_number(value, 2)}
    )


def _by_length(context: SectionContext[Options]) -> list[MetricColumn]:
    """Columns of the lengths and their depths, of all, and of `longest`, the last of them."""
    lengths, pair = several_lengths(context), context.suite.pairs[0]
    columns = [
        one for n in lengths for one in _with_depths(context, f"l{n}", str(n), pair, length=n)
    ]
    columns.append(_accuracy("average", "All ↑", group_name(pair)))
    longest, *depths = _with_depths(context, "longest", "Longest", pair, length=lengths[-1])
    return [*columns, replace(longest, header="Longest", hidden=True), *depths]


def _with_depths(
    context: SectionContext[Options],
    name: str,
    header: str,
    pair: list[int],
    length: int | None = None,
) -> list[MetricColumn]:
    """Column of an accuracy, and hidden ones of its depths."""
    return [
        _accuracy(name, f"{header} ↑", group_name(pair, length)),
        *(
            _accuracy(f"{name}_d{depth}", f"{header}, depth {depth}%",
                      group_name(pair, length, depth), hidden=True)
            for depth in context.suite.depths
        ),
    ]  # fmt: skip


def _accuracy(name: str, header: str, group: str, *, hidden: bool = False) -> MetricColumn:
    """Column of an accuracy, whose seeds tell their intervals."""

    def remark(result: Result) -> str:
        low, high = (format_number(end, 2) for end in answers_interval(result, group))
        return f"({low} to {high}, {require_metric(result, f'total_{group}'):.0f} asked)"

    return MetricColumn(name, header, f"accuracy_{group}", remark, hidden)


def answers_interval(result: Result, group: str) -> tuple[float, float]:
    """Wilson's interval of the answers of one result; ``group`` as `group_name` has it.

    Raises:
        UserError: they were not measured.
    """
    correct, asked = (require_metric(result, f"{name}_{group}") for name in ("correct", "total"))
    return wilson_interval(int(correct), int(asked))


def _settings_figure(context: SectionContext[Options]) -> Figure:
    """Draw settings above, and depths of each below."""
    pairs = context.suite.pairs
    figure, top, bottom = stacked_subfigures((11, 6.6), (3.7, 2.9), 0.04)
    _draw_settings(top.subplots(), context)
    grid = bottom.subplots(1, len(pairs), sharex=True, sharey=True, squeeze=False).ravel()
    for axes, pair in zip(grid, pairs, strict=True):
        _draw_depths(axes, context, pair)
    for axes in grid[1:]:
        axes.set_ylabel("")
    return figure


def _draw_settings(axes: Axes, context: SectionContext[Options]) -> None:
    names = {group_name(pair): f"N = {pair[0]}, R = {pair[1]}" for pair in context.suite.pairs}
    context.require_defined(accuracy_name(pair) for pair in context.suite.pairs)
    rows = {row.run: row for row in context.rows}

    def ends(cell: Cell) -> tuple[float, float] | None:
        seeds = context.eval_results(rows[cell.row])
        return cell_interval(cell) if len(seeds) > 1 else answers_interval(seeds[0], cell.column)

    found = cell_estimates(select_cells(section(context), names), ends=ends)
    draw_estimates(axes, found, context.styles, names, marks=7)
    axes.set_ylim(-0.04, 1.06)
    title = proxy_title("Accuracy, mean over depths", context.suite.proxy)
    label_axes(axes, x="needles in the context N, needles asked for R", y="accuracy", title=title)
    signs = row_legend(context.rows, context.styles, mark=7)
    if any(one.kind == "published" for one in found):
        signs.append(legend_handle("published", mark=7, hollow=True))
    axes.legend(handles=signs, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))


def _draw_depths(axes: Axes, context: SectionContext[Options], pair: list[int]) -> None:
    depths = context.suite.depths
    names = [accuracy_name(pair, depth=depth) for depth in depths]
    draw_metric_curves(axes, context, depths, names, marks=4)
    axes.axhline(1 / pair[0], color=SOFT, lw=0.8, ls=(0, (2, 2)))
    axes.set_ylim(-0.04, 1.06)
    axes.set_xticks(depths)
    label_axes(axes, x="depth of the answer, %", y="accuracy")
    axes.set_title(f"N = {pair[0]}, R = {pair[1]}", fontsize=9, pad=6)
