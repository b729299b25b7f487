"""Accuracy per task with lm-eval's standard error, and the mean over tasks.

The tables include published rows of models that are not evaluated at this scale, and the accuracy
of guessing on the same items.
"""

from dataclasses import replace
from functools import partial

from difftransformer.config.evaluation import AVERAGE
from difftransformer.errors import UserError
from difftransformer.evaluations.language_understanding.notes import notes, task_label
from difftransformer.evaluations.language_understanding.settings import Options, Suite, task_metric
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import (
    DIFFERENCE_SUFFIX,
    CellKey,
    PublishedValues,
    fact_cell,
    paired_differences,
)
from difftransformer.reporting.charts import (
    cell_estimates,
    cell_interval,
    draw_estimates,
    select_cells,
)
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.drawing import (
    SOFT,
    Axes,
    Figure,
    Line2D,
    RowStyle,
    label_axes,
    legend_below,
    legend_handle,
    row_styles,
)
from difftransformer.reporting.number_format import format_number
from difftransformer.reporting.panels import subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, fine_tuned_sizes, metric_cells
from difftransformer.reporting.table_notes import proxy_title

DECIMALS = 1
STDERR_SUFFIX = "_stderr"
"""Suffix of the columns with lm-eval's standard errors."""
CHANCE_ROW = "guessing"
"""Id of the row with the accuracy of guessing."""
_format = partial(format_number, decimals=DECIMALS)
_GUESS = RowStyle(SOFT, (2, 1.5), "")


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of accuracies per task with one number of few-shot examples."""
    suite: Suite = context.suite
    columns = {task + _column_suffix(context): task for task in [*suite.tasks, AVERAGE]}
    evaluated = {
        column: task
        for column, task in columns.items()
        if task in [*suite.evaluated_tasks, AVERAGE]
    }
    cells = _accuracy_cells(context, evaluated)
    if extra := _extra_metrics(context, suite):
        cells += metric_cells(context, extra, DECIMALS, context.published)
    ids = [*evaluated, *(metric.id for metric in extra if metric.show_difference)]
    cells += paired_differences(context.rows, ids, cells, DECIMALS)
    published, published_cells = _published(context, set(columns))
    sizes = fine_tuned_sizes(context)
    cells += [*published_cells, *sizes.cells]
    cells += [
        _chance_cell(column, task, context.eval_results()[0]) for column, task in evaluated.items()
    ]
    cells += _unevaluated_cells(context, set(columns) - set(evaluated))
    return Section(
        title=context.title,
        columns=[*_columns(context, columns), *_extra_columns(context, extra), *sizes.columns],
        rows=[
            *(Row(run=row.run, label=row.label) for row in context.rows),
            *published,
            Row(run=CHANCE_ROW, label="Guessing"),
        ],
        cells=cells,
        notes=[*notes(context), *sizes.notes],
        proxy=suite.proxy is not None,
    )


def figure(context: SectionContext[Options]) -> Figure:
    """Draw accuracies per task with intervals, one panel per section."""
    sections = [_figure_section(sibling) for sibling in context.sibling_contexts]
    colors = {row.run: row.color for part in context.sibling_contexts for row in part.rows}
    rows = dict.fromkeys(row.run for part in sections for row in part.rows if row.run != CHANCE_ROW)
    styles = row_styles({run: colors.get(run) for run in rows})
    figure, grid = subplot_grid(len(sections), 1, (10, 1.2 + 3.3 * len(sections)), sharey=True)
    for axes, part in zip(grid[:, 0], sections, strict=True):
        _panel(axes, part, styles)
    low, high = grid[0, 0].get_ylim()  # of all panels, so after the last one
    grid[0, 0].set_ylim(max(low, -3), min(high, 103))  # intervals of few items leave 0 to 100
    legend_below(figure, _legend(context, sections, styles))
    return figure


def _column_suffix(context: SectionContext[Options]) -> str:
    shots = context.suite.num_fewshot
    return f"_{shots}shot" if context.options.fewshot_in_columns and shots is not None else ""


def _columns(context: SectionContext[Options], columns: dict[str, str]) -> list[Column]:
    suite: Suite = context.suite
    labels = {column: task_label(task) for column, task in columns.items()}
    skipped = set(suite.tasks) - set(suite.evaluated_tasks)
    if skipped:
        labels[AVERAGE + _column_suffix(context)] = f"Avg of {len(suite.evaluated_tasks)}"
    added = [Column(id=column, header=f"{label} ↑") for column, label in labels.items()]
    labels = {column: labels[column] for column, task in columns.items() if task not in skipped}
    added += [
        Column(id=column + STDERR_SUFFIX, header=f"{label} s.e.", csv_only=True)
        for column, label in labels.items()
    ]
    if context.has_baselines:
        added += [
            Column(
                id=column + DIFFERENCE_SUFFIX,
                header=f"Δ {label}",
                csv_only=columns[column] != AVERAGE,
            )
            for column, label in labels.items()
        ]
    return added


def _accuracy_cells(context: SectionContext[Options], columns: dict[str, str]) -> list[Cell]:
    """Return for each accuracy its cell with lm-eval's standard error in its text, and that error.

    A single item has no standard error.
    """
    metrics = [
        MetricColumn(column + ending, "", {task_metric(task, part): 100.0})
        for column, task in columns.items()
        for ending, part in (("", ""), (STDERR_SUFFIX, "stderr"))
    ]
    accuracy_cells = metric_cells(context, metrics, DECIMALS, context.published)
    cells = []
    for cell, error in zip(accuracy_cells[::2], accuracy_cells[1::2], strict=True):
        stderr_text = "" if error.value is None else f" ({_format(error.value)})"
        changes: dict[str, object] = {"text": cell.text + stderr_text}
        if context.suite.skipped_note and columns[cell.column] == AVERAGE:
            changes |= {"paper_value": None, "paper_text": None}  # published over all tasks
        cells += [cell.model_copy(update=changes), error]
    return cells


def _unevaluated_cells(context: SectionContext[Options], columns: set[str]) -> list[Cell]:
    """Return blank cells with the published values."""
    paper = PublishedValues(context.artifact.paper)
    cells = []
    for row in context.rows:
        for column in sorted(columns):
            value = paper.number(row.run, column)
            text = None if value is None else _format(value)
            cells.append(
                Cell(row=row.run, column=column, text="", paper_value=value, paper_text=text)
            )
    return cells


def _extra_metrics(context: SectionContext[Options], suite: Suite) -> list[MetricColumn]:
    """Return metrics of the average without some tasks, and of the most common answer's share."""
    ending, metrics = _column_suffix(context), []
    if excluded := context.options.excluded_tasks:
        subset = [task for task in suite.evaluated_tasks if task not in excluded]
        if not subset or len(subset) + len(excluded) != len(suite.evaluated_tasks):
            raise UserError(
                f"{context.title}: options.excluded_tasks: {', '.join(excluded)}: exclude some of "
                f"the evaluated tasks, {', '.join(suite.evaluated_tasks)}, and not all"
            )
        labels = " and ".join(map(task_label, excluded))
        terms = {task_metric(task): 100 / len(subset) for task in subset}
        metrics.append(
            MetricColumn(
                f"{AVERAGE}_subset{ending}", f"Avg without {labels} ↑", terms, show_difference=True
            )
        )
    if context.options.most_common_share:
        metrics += [
            MetricColumn(f"{task}_most_common_share{ending}", f"{task_label(task)}, same answer",
                   {task_metric(task, "most_common_share"): 100.0}, csv_only=task not in excluded)
            for task in suite.evaluated_tasks
        ]  # fmt: skip
    return metrics


def _extra_columns(context: SectionContext[Options], extra: list[MetricColumn]) -> list[Column]:
    columns = [
        Column(id=metric.id, header=metric.header, csv_only=metric.csv_only) for metric in extra
    ]
    if context.has_baselines:
        columns += [
            Column(id=metric.id + DIFFERENCE_SUFFIX, header=f"Δ {metric.header.removesuffix(' ↑')}")
            for metric in extra
            if metric.show_difference
        ]
    return columns


def _published(context: SectionContext[Options], columns: set[str]) -> tuple[list[Row], list[Cell]]:
    """Return published rows of other models, and their cells, if they have any of these columns."""
    measured = {row.run for row in context.rows}
    paper_rows = {} if context.artifact.paper is None else context.artifact.paper.rows
    other_rows = {
        run: row
        for run, row in paper_rows.items()
        if run not in measured and columns & set(row.values)
    }
    rows = [Row(run=run, label=f"{row.label} (published)") for run, row in other_rows.items()]
    return rows, [
        Cell(row=run, column=column, text=f"[{_format(float(value))}]", paper_value=float(value))
        for run, row in other_rows.items()
        for column, value in row.values.items()
        if value is not None
    ]


def _chance_cell(column: str, task: str, result: Result) -> Cell:
    """Return the accuracy by guessing, which is the same for all models: they share the items."""
    share = require_metric(result, task_metric(task, "chance"))
    return fact_cell(
        CellKey(CHANCE_ROW, column), 100 * share, [result], PublishedValues(None), _format
    )


def _figure_section(context: SectionContext[Options]) -> Section:
    """Return the section to draw, without published values if the items are not the benchmarks."""
    proxy = context.suite.proxy
    if proxy is not None:
        context = replace(context, artifact=context.artifact.model_copy(update={"paper": None}))
    part = section(context)
    return part.model_copy(update={"title": proxy_title(part.title, proxy)})


def _panel(axes: Axes, part: Section, styles: dict[str, RowStyle]) -> None:
    chances = {
        column: cell.value
        for column in part.visible()
        if (cell := part.cell(CHANCE_ROW, column.id)) is not None and cell.value is not None
    }
    names = {column.id: column.header.removesuffix(" ↑") for column in chances}
    errors = {
        c.row + c.column: c.value for c in select_cells(part, [n + STDERR_SUFFIX for n in names])
    }
    cells = [cell for cell in select_cells(part, names) if cell.row in styles]
    points = cell_estimates(
        cells,
        ends=lambda cell: cell_interval(cell, errors.get(cell.row + cell.column + STDERR_SUFFIX)),
    )
    draw_estimates(axes, [point for point in points if point.kind != "seed"], styles, names)
    for x, chance in enumerate(chances.values()):
        axes.hlines(chance, x - 0.45, x + 0.45, color=SOFT, lw=1.1, ls=(0, _GUESS.dash))
    label_axes(axes, x="", y="accuracy, %", title=part.title)


def _legend(
    context: SectionContext[Options], sections: list[Section], styles: dict[str, RowStyle]
) -> list[Line2D]:
    paper = context.artifact.paper
    labels = {row.run: row.label for part in sections for row in part.rows}
    measured = {row.run for sibling in context.sibling_contexts for row in sibling.rows}
    handles = [
        legend_handle(labels[run], style, marker_size=6, hollow=run not in measured)
        for run, style in styles.items()
    ]
    cells = [cell for part in sections for cell in part.cells if cell.row in measured]
    if paper is not None and any(cell.paper_value is not None for cell in cells):
        handles.append(legend_handle(f"published ({paper.scale})", marker_size=6, hollow=True))
    return [*handles, legend_handle("guessing", _GUESS, line_width=1.1, marker_size=0)]
