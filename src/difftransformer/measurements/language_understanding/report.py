"""Accuracy on language understanding by task with lm-eval's error, and the mean over tasks.

Beside the rows that were measured stand the published rows of models that this scale leaves out,
and the accuracy of guessing on the same items.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from difftransformer.config.measurement import AVERAGE
from difftransformer.errors import UserError
from difftransformer.measurements.language_understanding.notes import label_of, notes
from difftransformer.measurements.language_understanding.settings import Options, Suite, metric_of
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import DIFFERENCE, Paper, Place, fact_cell, paired_differences
from difftransformer.reporting.collect import defined
from difftransformer.reporting.conditions import stand_in_title
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.drawing import (
    FAINT,
    SOFT,
    Look,
    legend_below,
    looks,
    printable,
    tidy,
)
from difftransformer.reporting.forest import interval
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.panels import name_places, panels
from difftransformer.reporting.sections import Metric, adapted_sizes, metric_cells
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

DECIMALS = 1
ERROR = "_stderr"
"""Ending of the column of lm-eval's standard errors of another column."""
GUESSING = "guessing"
"""Row of the accuracy of guessing."""
_WRITE = partial(plain, decimals=DECIMALS)
_BREADTH = 0.72
_DOTS = (0, (2, 1.5))


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
        stand_in=suite.stand_in is not None,
    )


def figure(view: View[Options]) -> "Figure":
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
    legend_below(figure, handles=_legend(view, measured, look))
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
    stand_in = view.suite.stand_in
    if stand_in is not None:
        view = replace(view, artifact=view.artifact.model_copy(update={"paper": None}))
    part = section(view)
    return part.model_copy(update={"title": stand_in_title(part.title, stand_in)})


def _panel(axes: "Axes", part: Section, look: dict[str, Look]) -> None:
    columns = [one for one in part.visible() if part.cell(GUESSING, one.id) is not None]
    shown = [row.run for row in part.rows if row.run != GUESSING]
    step = _BREADTH / len(shown)
    for place, column in enumerate(columns):
        chance = part.cell(GUESSING, column.id)
        assert chance is not None and chance.value is not None
        axes.hlines(chance.value, place - 0.45, place + 0.45, color=SOFT, lw=1.1, ls=_DOTS)
        for index, run in enumerate(shown):
            cell = part.cell(run, column.id)
            error = part.cell(run, column.id + ERROR)
            if cell is not None:
                x = place + (index - (len(shown) - 1) / 2) * step
                _point(axes, x, step, cell, error, look[run])
    name_places(axes, [column.header.removesuffix(" ↑") for column in columns])
    for edge in range(len(columns) - 1):
        axes.axvline(edge + 0.5, color=FAINT, lw=1.4 if edge == len(columns) - 2 else 0.6)
    axes.tick_params(axis="x", length=0)
    tidy(axes, x="", y="accuracy, %", title=part.title)


def _point(axes: "Axes", x: float, step: float, cell: Cell, error: Cell | None, look: Look) -> None:
    """Ours with its interval, and beside it the published value."""
    published = x if cell.value is None else x + step / 4
    if cell.paper_value is not None:
        axes.plot([published], [cell.paper_value], look.marker, mec=look.colour, mfc="white", ms=5)
    if cell.value is None:
        return
    at = x if cell.paper_value is None else x - step / 4
    if (ends := interval(cell, None if error is None else error.value)) is not None:
        axes.plot([at, at], ends, color=look.colour, lw=1.6)
    axes.plot([at], [cell.value], look.marker, color=look.colour, ms=5.5, mec="white", mew=0.5)


def _legend(view: View[Options], sections: list[Section], look: dict[str, Look]) -> list["Line2D"]:
    from matplotlib.lines import Line2D

    paper = view.artifact.paper
    labels = {row.run: row.label for part in sections for row in part.rows}
    ours = {row.run for one in view.sections for row in one.rows}
    handles = [
        Line2D(
            [], [], marker=one.marker, color=one.colour, mfc=one.colour if run in ours else "white",
            ls="", ms=6, label=printable(labels[run]),
        )
        for run, one in look.items()
    ]  # fmt: skip
    cells = [cell for part in sections for cell in part.cells if cell.row in ours]
    if paper is not None and any(cell.paper_value is not None for cell in cells):
        label = f"published ({paper.scale})"
        handles.append(Line2D([], [], marker="o", mec=SOFT, mfc="white", ls="", ms=6, label=label))
    return [*handles, Line2D([], [], color=SOFT, lw=1.1, ls=_DOTS, label="guessing")]
