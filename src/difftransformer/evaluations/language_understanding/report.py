"""Accuracy on language understanding by task with lm-eval's error, and the mean over tasks.

Beside the rows that were measured stand the published rows of models that this scale leaves out,
and the accuracy of guessing on the same items.
"""

from dataclasses import replace
from functools import partial

from difftransformer.config.evaluation import AVERAGE
from difftransformer.errors import UserError
from difftransformer.evaluations.language_understanding.notes import label_of, notes
from difftransformer.evaluations.language_understanding.settings import Options, Suite, metric_of
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
ERROR = "_stderr"
"""Ending of the column of lm-eval's standard errors of another column."""
GUESSING = "guessing"
"""Row of the accuracy of guessing."""
_WRITE = partial(plain, decimals=DECIMALS)
_GUESS = Look(SOFT, (2, 1.5), "")


def section(view: View[Options]) -> Section:
    """Make the section; where tables have several its columns carry the number of examples."""
    suite: Suite = view.suite
    columns = {task + _ending(view): task for task in [*suite.tasks, AVERAGE]}
    asked = {one: task for one, task in columns.items() if task in [*suite.asked_tasks, AVERAGE]}
    cells = _measured(view, asked)
    if more := _more(view, suite):
        cells += metric_cells(view, more, DECIMALS, view.paper)
    ids = [*asked, *(one.id for one in more if one.compared)]
    cells += paired_differences(view.rows, ids, cells, DECIMALS)
    published, of_them = _published(view, set(columns))
    sizes = adapted_sizes(view)
    cells += [*of_them, *sizes.cells]
    cells += [_guessing(column, task, view.evaluated()[0]) for column, task in asked.items()]
    cells += _not_asked(view, set(columns) - set(asked))
    return Section(
        title=view.title,
        columns=[*_columns(view, columns), *_columns_of(view, more), *sizes.columns],
        rows=[
            *(Row(run=row.run, label=row.label) for row in view.rows),
            *published,
            Row(run=GUESSING, label="Guessing"),
        ],
        cells=cells,
        notes=[*notes(view), *sizes.notes],
        proxy=suite.proxy is not None,
    )


def figure(view: View[Options]) -> Figure:
    """Draw points with intervals, one panel a section, tasks from left to right; one legend."""
    measured = [_drawn(one) for one in view.sections]
    known = {row.run: row.look for part in view.sections for row in part.rows}
    rows = dict.fromkeys(row.run for part in measured for row in part.rows if row.run != GUESSING)
    look = looks({run: known.get(run) for run in rows})
    figure, grid = panels(len(measured), 1, (10, 1.2 + 3.3 * len(measured)), sharey=True)
    for axes, part in zip(grid[:, 0], measured, strict=True):
        _panel(axes, part, look)
    low, high = grid[0, 0].get_ylim()  # of all panels, so after the last one
    grid[0, 0].set_ylim(max(low, -3), min(high, 103))  # intervals of few items leave 0 to 100
    legend_below(figure, _legend(view, measured, look))
    return figure


def _ending(view: View[Options]) -> str:
    shots = view.suite.num_fewshot
    return f"_{shots}shot" if view.options.numbered and shots is not None else ""


def _columns(view: View[Options], columns: dict[str, str]) -> list[Column]:
    suite: Suite = view.suite
    labels = {column: label_of(task) for column, task in columns.items()}
    left = set(suite.tasks) - set(suite.asked_tasks)
    if left:
        labels[AVERAGE + _ending(view)] = f"Avg of {len(suite.asked_tasks)}"
    found = [Column(id=one, header=f"{label} ↑") for one, label in labels.items()]
    labels = {one: labels[one] for one, task in columns.items() if task not in left}
    found += [
        Column(id=one + ERROR, header=f"{label} s.e.", tidy_only=True)
        for one, label in labels.items()
    ]
    if view.compared:
        found += [
            Column(id=one + DIFFERENCE, header=f"Δ {label}", tidy_only=columns[one] != AVERAGE)
            for one, label in labels.items()
        ]
    return found


def _measured(view: View[Options], columns: dict[str, str]) -> list[Cell]:
    """Accuracies with lm-eval's standard error behind them, each before that error by itself.

    A single item has none.
    """
    metrics = [
        Metric(column + ending, "", {metric_of(task, part): 100.0})
        for column, task in columns.items()
        for ending, part in (("", ""), (ERROR, "stderr"))
    ]
    found = metric_cells(view, metrics, DECIMALS, view.paper)
    cells = []
    for cell, error in zip(found[::2], found[1::2], strict=True):
        behind = "" if error.value is None else f" ({_WRITE(error.value)})"
        changes: dict[str, object] = {"text": cell.text + behind}
        if view.suite.code_note and columns[cell.column] == AVERAGE:
            changes |= {"paper_value": None, "paper_text": None}  # the published one is over all
        cells += [cell.model_copy(update=changes), error]
    return cells


def _not_asked(view: View[Options], columns: set[str]) -> list[Cell]:
    """Blanks, with what is published."""
    paper = Paper(view.artifact.paper)
    found = []
    for row in view.rows:
        for column in sorted(columns):
            value = paper.number(row.run, column)
            text = None if value is None else _WRITE(value)
            found.append(
                Cell(row=row.run, column=column, text="", paper_value=value, paper_text=text)
            )
    return found


def _more(view: View[Options], suite: Suite) -> list[Metric]:
    """The average without some tasks, and the shares of the answer given most."""
    ending, found = _ending(view), []
    if left_out := view.options.without:
        rest = [task for task in suite.asked_tasks if task not in left_out]
        if not rest or len(rest) + len(left_out) != len(suite.asked_tasks):
            raise UserError(
                f"{view.title}: options.without: {', '.join(left_out)}: it leaves out some of the "
                f"tasks that are asked, {', '.join(suite.asked_tasks)}, and not all"
            )
        labels = " and ".join(map(label_of, left_out))
        terms = {metric_of(task): 100 / len(rest) for task in rest}
        found.append(
            Metric(f"{AVERAGE}_rest{ending}", f"Avg without {labels} ↑", terms, compared=True)
        )
    if view.options.constant:
        found += [
            Metric(f"{task}_constant{ending}", f"{label_of(task)}, one answer",
                   {metric_of(task, "constant"): 100.0}, hidden=task not in left_out)
            for task in suite.asked_tasks
        ]  # fmt: skip
    return found


def _columns_of(view: View[Options], more: list[Metric]) -> list[Column]:
    found = [Column(id=one.id, header=one.header, tidy_only=one.hidden) for one in more]
    if view.compared:
        found += [
            Column(id=one.id + DIFFERENCE, header=f"Δ {one.header.removesuffix(' ↑')}")
            for one in more
            if one.compared
        ]
    return found


def _published(view: View[Options], columns: set[str]) -> tuple[list[Row], list[Cell]]:
    """Rows that are published and not measured, where they have any of these columns."""
    measured = {row.run for row in view.rows}
    known = {} if view.artifact.paper is None else view.artifact.paper.rows
    found = {
        run: row for run, row in known.items() if run not in measured and columns & set(row.values)
    }
    rows = [Row(run=run, label=f"{row.label} (published)") for run, row in found.items()]
    return rows, [
        Cell(row=run, column=column, text=f"[{_WRITE(float(value))}]", paper_value=float(value))
        for run, row in found.items()
        for column, value in row.values.items()
        if value is not None
    ]


def _guessing(column: str, task: str, one: Result) -> Cell:
    """The same for every row: all were asked the same items."""
    share = defined(one, metric_of(task, "chance"))
    return fact_cell(Place(GUESSING, column), 100 * share, [one], Paper(None), _WRITE)


def _drawn(view: View[Options]) -> Section:
    """What is drawn: nothing published beside items that stand in for the benchmarks."""
    proxy = view.suite.proxy
    if proxy is not None:
        view = replace(view, artifact=view.artifact.model_copy(update={"paper": None}))
    part = section(view)
    return part.model_copy(update={"title": proxy_title(part.title, proxy)})


def _panel(axes: Axes, part: Section, look: dict[str, Look]) -> None:
    chances = {
        column: cell.value
        for column in part.visible()
        if (cell := part.cell(GUESSING, column.id)) is not None and cell.value is not None
    }
    names = {column.id: column.header.removesuffix(" ↑") for column in chances}
    errors = {c.row + c.column: c.value for c in cells_of(part, [n + ERROR for n in names])}
    cells = [cell for cell in cells_of(part, names) if cell.row in look]
    found = cell_estimates(
        cells, ends=lambda cell: interval(cell, errors.get(cell.row + cell.column + ERROR))
    )
    estimates(axes, [one for one in found if one.kind != "seed"], look, names)
    for place, chance in enumerate(chances.values()):
        axes.hlines(chance, place - 0.45, place + 0.45, color=SOFT, lw=1.1, ls=(0, _GUESS.dash))
    tidy(axes, x="", y="accuracy, %", title=part.title)


def _legend(view: View[Options], sections: list[Section], look: dict[str, Look]) -> list[Line2D]:
    paper = view.artifact.paper
    labels = {row.run: row.label for part in sections for row in part.rows}
    ours = {row.run for one in view.sections for row in one.rows}
    signs = [sign(labels[run], one, mark=6, hollow=run not in ours) for run, one in look.items()]
    cells = [cell for part in sections for cell in part.cells if cell.row in ours]
    if paper is not None and any(cell.paper_value is not None for cell in cells):
        signs.append(sign(f"published ({paper.scale})", mark=6, hollow=True))
    return [*signs, sign("guessing", _GUESS, line=1.1, mark=0)]
