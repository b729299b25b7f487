"""Table and figure of multi-needle retrieval, by setting [N, R] or by context length."""

from dataclasses import replace

from difftransformer.evaluations.needles import by_length
from difftransformer.evaluations.needles.by_length import require_lengths
from difftransformer.evaluations.needles.settings import Options, accuracy_metric, group_name
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
    "recall": "A synthetic proxy for the paper's sentences: needles are keys with values of the "
    "builtin recall corpus in its own haystack; each question is its own prompt with this context.",
    "text": "Needles are English sentences in held-out text, the template LWM's.",
}


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of accuracies by setting [N, R], or by context length."""
    suite, (needles, queries) = context.suite, context.suite.pairs[0]
    if context.options.by == "setting":
        metrics = _by_setting(context)
        meaning = "Accuracy: mean share of queried needles that are answered."
    else:
        metrics = _by_length(context)
        meaning = (
            f"N = {needles}, R = {queries}; columns are context lengths in tokens, mean over the "
            "depths."
        )
    notes = [
        f"{_FORMAT[suite.format]} {suite.samples} prompts at each of the depths "
        f"{', '.join(map(str, suite.depths))}% of the first queried needle; other needles are at "
        f"random positions. {meaning} A cell opens to its seeds, each with Wilson's 95% "
        "interval, which takes answers as independent.",
        context.training_note(),
    ]
    table = metric_section(context.as_proxy(suite.proxy), metrics, decimals=2, notes=notes)
    if context.options.by != "setting":
        return table
    return table.model_copy(
        update={"cells": [_add_published(context, cell) for cell in table.cells]}
    )


def figure(context: SectionContext[Options]) -> Figure:
    """Draw accuracies by setting [N, R] and depth, or by context length and depth."""
    if context.options.by == "setting":
        return _settings_figure(context)
    return by_length.figure(context)


def _by_setting(context: SectionContext[Options]) -> list[MetricColumn]:
    """Return columns of settings and depths, the drop from first to last, and the last."""
    pairs = context.suite.pairs
    columns = [
        metric
        for pair in pairs
        for metric in _with_depths(context, group_name(pair), f"N = {pair[0]}, R = {pair[1]}", pair)
    ]
    if len(pairs) > 1:
        first, last = accuracy_metric(pairs[0]), accuracy_metric(pairs[-1])
        span = f"N = {pairs[0][0]} to {pairs[-1][0]}"
        columns.append(MetricColumn("drop", f"Drop, {span} ↓", {first: 1.0, last: -1.0}))
    columns.append(_accuracy("hardest", "Hardest ↑", group_name(pairs[-1]), hidden=True))
    return columns


def _add_published(context: SectionContext[Options], cell: Cell) -> Cell:
    """Add the published values of the same settings to `drop` and `hardest`."""
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
    """Return columns of lengths and depths, of the mean over lengths, and of the longest."""
    lengths, pair = require_lengths(context), context.suite.pairs[0]
    columns = [
        metric for n in lengths for metric in _with_depths(context, f"l{n}", str(n), pair, length=n)
    ]
    columns.append(_accuracy("average", "All ↑", group_name(pair)))
    longest, *depths = _with_depths(context, "longest", "Longest", pair, length=lengths[-1])
    return [*columns, replace(longest, header="Longest", csv_only=True), *depths]


def _with_depths(
    context: SectionContext[Options],
    name: str,
    header: str,
    pair: list[int],
    length: int | None = None,
) -> list[MetricColumn]:
    """Return the column of an accuracy and hidden columns of its depths."""
    return [
        _accuracy(name, f"{header} ↑", group_name(pair, length)),
        *(
            _accuracy(f"{name}_d{depth}", f"{header}, depth {depth}%",
                      group_name(pair, length, depth), hidden=True)
            for depth in context.suite.depths
        ),
    ]  # fmt: skip


def _accuracy(name: str, header: str, group: str, *, hidden: bool = False) -> MetricColumn:
    """Return the column of an accuracy; its seeds show Wilson's intervals."""

    def remark(result: Result) -> str:
        low, high = (format_number(end, 2) for end in answers_interval(result, group))
        return f"({low} to {high}, {require_metric(result, f'total_{group}'):.0f} queries)"

    return MetricColumn(name, header, f"accuracy_{group}", remark, hidden)


def answers_interval(result: Result, group: str) -> tuple[float, float]:
    """Return Wilson's 95% interval of the accuracy in a group of prompts, see `group_name`.

    Raises:
        UserError: The group's accuracy was not measured.
    """
    correct, total = (require_metric(result, f"{name}_{group}") for name in ("correct", "total"))
    return wilson_interval(int(correct), int(total))


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
    context.require_defined(accuracy_metric(pair) for pair in context.suite.pairs)
    rows = {row.run: row for row in context.rows}

    def ends(cell: Cell) -> tuple[float, float] | None:
        seeds = context.eval_results(rows[cell.row])
        return cell_interval(cell) if len(seeds) > 1 else answers_interval(seeds[0], cell.column)

    accuracies = cell_estimates(select_cells(section(context), names), ends=ends)
    draw_estimates(axes, accuracies, context.styles, names, marker_size=7)
    axes.set_ylim(-0.04, 1.06)
    title = proxy_title("Accuracy, mean over depths", context.suite.proxy)
    label_axes(axes, x="needles in the context N, needles queried R", y="accuracy", title=title)
    handles = row_legend(context.rows, context.styles, marker_size=7)
    if any(accuracy.kind == "published" for accuracy in accuracies):
        handles.append(legend_handle("published", marker_size=7, hollow=True))
    axes.legend(handles=handles, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))


def _draw_depths(axes: Axes, context: SectionContext[Options], pair: list[int]) -> None:
    depths = context.suite.depths
    names = [accuracy_metric(pair, depth=depth) for depth in depths]
    draw_metric_curves(axes, context, depths, names, marker_size=4)
    axes.axhline(1 / pair[0], color=SOFT, lw=0.8, ls=(0, (2, 2)))
    axes.set_ylim(-0.04, 1.06)
    axes.set_xticks(depths)
    label_axes(axes, x="depth of the answer, %", y="accuracy")
    axes.set_title(f"N = {pair[0]}, R = {pair[1]}", fontsize=9, pad=6)
