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
from difftransformer.reporting.cells import DIFFERENCE, Paper, Place, fact_cell, paired_differences
from difftransformer.reporting.charts import cell_estimates, cells_of, estimates, interval
from difftransformer.reporting.collect import defined
from difftransformer.reporting.conditions import proxy_title
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.drawing import (
    SOFT,
    Axes,
    Figure,
    Line2D,
    Look,
    legend_below,
    looks,
    sign,
    tidy,
)
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.panels import panels
from difftransformer.reporting.sections import Metric, adapted_sizes, metric_cells
from difftransformer.reporting.view import View

DECIMALS = 1
STDERR_SUFFIX = "_stderr"
"""Suffix of the column with lm-eval's standard errors."""
CHANCE_ROW = "guessing"
"""Row of the accuracy by guessing."""
_format = partial(plain, decimals=DECIMALS)
_GUESS = Look(SOFT, (2, 1.5), "")


def section(view: View[Options]) -> Section:
    """Build the section of one number of few-shot examples."""
    suite: Suite = view.suite
    columns = {task + _column_suffix(view): task for task in [*suite.tasks, AVERAGE]}
    evaluated = {
        column: task
        for column, task in columns.items()
        if task in [*suite.evaluated_tasks, AVERAGE]
    }
    cells = _accuracy_cells(view, evaluated)
    if extra := _extra_metrics(view, suite):
        cells += metric_cells(view, extra, DECIMALS, view.paper)
    ids = [*evaluated, *(metric.id for metric in extra if metric.compared)]
    cells += paired_differences(view.rows, ids, cells, DECIMALS)
    published, published_cells = _published(view, set(columns))
    sizes = adapted_sizes(view)
    cells += [*published_cells, *sizes.cells]
    cells += [_chance_cell(column, task, view.evaluated()[0]) for column, task in evaluated.items()]
    cells += _unevaluated_cells(view, set(columns) - set(evaluated))
    return Section(
        title=view.title,
        columns=[*_columns(view, columns), *_extra_columns(view, extra), *sizes.columns],
        rows=[
            *(Row(run=row.run, label=row.label) for row in view.rows),
            *published,
            Row(run=CHANCE_ROW, label="Guessing"),
        ],
        cells=cells,
        notes=[*notes(view), *sizes.notes],
        proxy=suite.proxy is not None,
    )


def figure(view: View[Options]) -> Figure:
    """Draw accuracies with intervals, one panel per section, tasks from left to right."""
    sections = [_figure_section(part_view) for part_view in view.sections]
    row_styles = {row.run: row.look for part in view.sections for row in part.rows}
    rows = dict.fromkeys(row.run for part in sections for row in part.rows if row.run != CHANCE_ROW)
    look = looks({run: row_styles.get(run) for run in rows})
    figure, grid = panels(len(sections), 1, (10, 1.2 + 3.3 * len(sections)), sharey=True)
    for axes, part in zip(grid[:, 0], sections, strict=True):
        _panel(axes, part, look)
    low, high = grid[0, 0].get_ylim()  # of all panels, so after the last one
    grid[0, 0].set_ylim(max(low, -3), min(high, 103))  # intervals of few items leave 0 to 100
    legend_below(figure, _legend(view, sections, look))
    return figure


def _column_suffix(view: View[Options]) -> str:
    shots = view.suite.num_fewshot
    return f"_{shots}shot" if view.options.fewshot_in_columns and shots is not None else ""


def _columns(view: View[Options], columns: dict[str, str]) -> list[Column]:
    suite: Suite = view.suite
    labels = {column: task_label(task) for column, task in columns.items()}
    skipped = set(suite.tasks) - set(suite.evaluated_tasks)
    if skipped:
        labels[AVERAGE + _column_suffix(view)] = f"Avg of {len(suite.evaluated_tasks)}"
    added = [Column(id=column, header=f"{label} ↑") for column, label in labels.items()]
    labels = {column: labels[column] for column, task in columns.items() if task not in skipped}
    added += [
        Column(id=column + STDERR_SUFFIX, header=f"{label} s.e.", tidy_only=True)
        for column, label in labels.items()
    ]
    if view.compared:
        added += [
            Column(
                id=column + DIFFERENCE, header=f"Δ {label}", tidy_only=columns[column] != AVERAGE
            )
            for column, label in labels.items()
        ]
    return added


def _accuracy_cells(view: View[Options], columns: dict[str, str]) -> list[Cell]:
    """Return for each accuracy its cell with lm-eval's standard error in its text, and that error.

    A single item has no standard error.
    """
    metrics = [
        Metric(column + ending, "", {task_metric(task, part): 100.0})
        for column, task in columns.items()
        for ending, part in (("", ""), (STDERR_SUFFIX, "stderr"))
    ]
    accuracy_cells = metric_cells(view, metrics, DECIMALS, view.paper)
    cells = []
    for cell, error in zip(accuracy_cells[::2], accuracy_cells[1::2], strict=True):
        stderr_text = "" if error.value is None else f" ({_format(error.value)})"
        changes: dict[str, object] = {"text": cell.text + stderr_text}
        if view.suite.skipped_note and columns[cell.column] == AVERAGE:
            changes |= {"paper_value": None, "paper_text": None}  # published over all tasks
        cells += [cell.model_copy(update=changes), error]
    return cells


def _unevaluated_cells(view: View[Options], columns: set[str]) -> list[Cell]:
    """Return blank cells with the published values."""
    paper = Paper(view.artifact.paper)
    cells = []
    for row in view.rows:
        for column in sorted(columns):
            value = paper.number(row.run, column)
            text = None if value is None else _format(value)
            cells.append(
                Cell(row=row.run, column=column, text="", paper_value=value, paper_text=text)
            )
    return cells


def _extra_metrics(view: View[Options], suite: Suite) -> list[Metric]:
    """Return metrics of the average without some tasks, and of the most common answer's share."""
    ending, metrics = _column_suffix(view), []
    if excluded := view.options.excluded_tasks:
        subset = [task for task in suite.evaluated_tasks if task not in excluded]
        if not subset or len(subset) + len(excluded) != len(suite.evaluated_tasks):
            raise UserError(
                f"{view.title}: options.excluded_tasks: {', '.join(excluded)}: exclude some of the "
                f"evaluated tasks, {', '.join(suite.evaluated_tasks)}, and not all"
            )
        labels = " and ".join(map(task_label, excluded))
        terms = {task_metric(task): 100 / len(subset) for task in subset}
        metrics.append(
            Metric(f"{AVERAGE}_subset{ending}", f"Avg without {labels} ↑", terms, compared=True)
        )
    if view.options.most_common_share:
        metrics += [
            Metric(f"{task}_most_common_share{ending}", f"{task_label(task)}, same answer",
                   {task_metric(task, "most_common_share"): 100.0}, hidden=task not in excluded)
            for task in suite.evaluated_tasks
        ]  # fmt: skip
    return metrics


def _extra_columns(view: View[Options], extra: list[Metric]) -> list[Column]:
    columns = [
        Column(id=metric.id, header=metric.header, tidy_only=metric.hidden) for metric in extra
    ]
    if view.compared:
        columns += [
            Column(id=metric.id + DIFFERENCE, header=f"Δ {metric.header.removesuffix(' ↑')}")
            for metric in extra
            if metric.compared
        ]
    return columns


def _published(view: View[Options], columns: set[str]) -> tuple[list[Row], list[Cell]]:
    """Return published rows of other models, and their cells, if they have any of these columns."""
    measured = {row.run for row in view.rows}
    paper_rows = {} if view.artifact.paper is None else view.artifact.paper.rows
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
    share = defined(result, task_metric(task, "chance"))
    return fact_cell(Place(CHANCE_ROW, column), 100 * share, [result], Paper(None), _format)


def _figure_section(view: View[Options]) -> Section:
    """Return the section to draw, without published values if the items are not the benchmarks."""
    proxy = view.suite.proxy
    if proxy is not None:
        view = replace(view, artifact=view.artifact.model_copy(update={"paper": None}))
    part = section(view)
    return part.model_copy(update={"title": proxy_title(part.title, proxy)})


def _panel(axes: Axes, part: Section, look: dict[str, Look]) -> None:
    chances = {
        column: cell.value
        for column in part.visible()
        if (cell := part.cell(CHANCE_ROW, column.id)) is not None and cell.value is not None
    }
    names = {column.id: column.header.removesuffix(" ↑") for column in chances}
    errors = {c.row + c.column: c.value for c in cells_of(part, [n + STDERR_SUFFIX for n in names])}
    cells = [cell for cell in cells_of(part, names) if cell.row in look]
    points = cell_estimates(
        cells, ends=lambda cell: interval(cell, errors.get(cell.row + cell.column + STDERR_SUFFIX))
    )
    estimates(axes, [point for point in points if point.kind != "seed"], look, names)
    for x, chance in enumerate(chances.values()):
        axes.hlines(chance, x - 0.45, x + 0.45, color=SOFT, lw=1.1, ls=(0, _GUESS.dash))
    tidy(axes, x="", y="accuracy, %", title=part.title)


def _legend(view: View[Options], sections: list[Section], look: dict[str, Look]) -> list[Line2D]:
    paper = view.artifact.paper
    labels = {row.run: row.label for part in sections for row in part.rows}
    measured = {row.run for part_view in view.sections for row in part_view.rows}
    signs = [
        sign(labels[run], part_view, mark=6, hollow=run not in measured)
        for run, part_view in look.items()
    ]
    cells = [cell for part in sections for cell in part.cells if cell.row in measured]
    if paper is not None and any(cell.paper_value is not None for cell in cells):
        signs.append(sign(f"published ({paper.scale})", mark=6, hollow=True))
    return [*signs, sign("guessing", _GUESS, line=1.1, mark=0)]
