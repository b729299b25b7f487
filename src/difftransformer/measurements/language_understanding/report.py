"""Accuracy on language understanding by task with lm-eval's error, and the mean over tasks.

Beside the rows that were measured stand the published rows of models that this scale leaves out,
and the accuracy of guessing on the same items.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from difftransformer.config.measurement import AVERAGE, Options
from difftransformer.measurements.language_understanding.settings import Suite, metric_of
from difftransformer.measurements.language_understanding.tasks import LANGUAGE_TASKS
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import (
    DIFFERENCE,
    Paper,
    Place,
    mean_cell,
    paired_differences,
    seed_values,
)
from difftransformer.reporting.collect import defined, metric
from difftransformer.reporting.conditions import stand_in_title, training_note
from difftransformer.reporting.document import Cell, Column, Row, Section, SeedValue
from difftransformer.reporting.drawing import (
    FAINT,
    SOFT,
    Look,
    legend_below,
    looks,
    printable,
    tidy,
)
from difftransformer.reporting.numbers import plain
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
_BREADTH = 0.72
_NORMAL = 1.96  # of standard errors to either side of an interval of 95%
_DOTS = (0, (2, 1.5))


def section(view: View[Options]) -> Section:
    """Make the section; its columns carry the number of solved examples, as tables have several.

    Raises:
        UserError: a result is missing, or rows were asked different items.
    """
    suite: Suite = view.suite
    columns = {f"{task}_{suite.num_fewshot}shot": task for task in [*suite.tasks, AVERAGE]}
    cells = [
        cell
        for row in view.rows
        for column, task in columns.items()
        for cell in _measured(Place(row.run, column), task, view.evaluated(row), view.paper)
    ]
    cells += paired_differences(view.rows, list(columns), cells, DECIMALS)
    published = _published(view, set(columns))
    cells += [cell for row in published for cell in _published_cells(view, row)]
    cells += [_guessing(column, task, view.evaluated()[0]) for column, task in columns.items()]
    return Section(
        title=view.title,
        columns=_columns(view, columns),
        rows=[
            *(Row(run=row.run, label=row.label) for row in view.rows),
            *published,
            Row(run=GUESSING, label="Guessing"),
        ],
        cells=cells,
        notes=_notes(view),
    )


def figure(view: View[Options]) -> "Figure":
    """Draw points with intervals, one panel a section, tasks from left to right; one legend."""
    import matplotlib.pyplot as plt

    measured = [_drawn(one) for one in view.sections]
    rows = list(dict.fromkeys(row.run for part in measured for row in part.rows))
    look = looks([run for run in rows if run != GUESSING])
    figure, grid = plt.subplots(
        len(measured), 1, figsize=(10, 1.2 + 3.3 * len(measured)), layout="constrained",
        squeeze=False, sharey=True,
    )  # fmt: skip
    for axes, part in zip(grid[:, 0], measured, strict=True):
        _panel(axes, part, look)
    low, high = grid[0, 0].get_ylim()  # of all panels, so after the last one
    grid[0, 0].set_ylim(max(low, -3), min(high, 103))  # intervals of few items leave 0 to 100
    legend_below(figure, handles=_legend(view, measured, look))
    return figure


def _label(task: str) -> str:
    return "Avg" if task == AVERAGE else LANGUAGE_TASKS[task].label


def _columns(view: View[Options], columns: dict[str, str]) -> list[Column]:
    found = [Column(id=one, header=f"{_label(task)} ↑") for one, task in columns.items()]
    found += [
        Column(id=one + ERROR, header=f"{_label(task)} s.e.", tidy_only=True)
        for one, task in columns.items()
    ]
    if view.compared:
        found += [
            Column(id=one + DIFFERENCE, header=f"Δ {_label(task)}", tidy_only=task != AVERAGE)
            for one, task in columns.items()
        ]
    return found


def _measured(place: Place, task: str, found: Sequence[Result], paper: Paper) -> list[Cell]:
    """The accuracy with lm-eval's standard error behind it, and that error by itself."""
    cell = mean_cell(place, _percent(found, metric_of(task)), DECIMALS, paper)
    errors = _percent(found, metric_of(task, "stderr"))
    error = mean_cell(Place(place.row, place.column + ERROR), errors, DECIMALS, Paper(None))
    assert error.value is not None, place
    text = f"{cell.text} ({plain(error.value, DECIMALS)})"
    return [cell.model_copy(update={"text": text}), error]


def _percent(found: Sequence[Result], name: str) -> list[SeedValue]:
    shares = [(result, metric(result, name)) for result in found]
    return seed_values(
        [(result, None if share is None else 100 * share) for result, share in shares], DECIMALS
    )


def _published(view: View[Options], columns: set[str]) -> list[Row]:
    """Rows that are published and not measured, where they have any of these columns."""
    measured = {row.run for row in view.rows}
    rows = {} if view.artifact.paper is None else view.artifact.paper.rows
    return [
        Row(run=run, label=f"{row.label} (published)")
        for run, row in rows.items()
        if run not in measured and columns & set(row.values)
    ]


def _published_cells(view: View[Options], row: Row) -> list[Cell]:
    assert view.artifact.paper is not None
    return [
        Cell(
            row=row.run,
            column=column,
            text=f"[{plain(float(value), DECIMALS)}]",
            paper_value=float(value),
        )
        for column, value in view.artifact.paper.rows[row.run].values.items()
        if value is not None
    ]


def _guessing(column: str, task: str, one: Result) -> Cell:
    """The same for every row: all were asked the same items."""
    value = 100 * defined(one, metric_of(task, "chance"))
    return Cell(
        row=GUESSING,
        column=column,
        text=plain(value, DECIMALS),
        value=value,
        n=1,
        seeds=[SeedValue(seed=one.seed, value=None, text="", job_ids=[one.job_id])],
    )


def _notes(view: View[Options]) -> list[str]:
    suite, everything = view.suite, view.evaluated()
    others = [_label(task) for task in suite.tasks if LANGUAGE_TASKS[task].metric != "acc"]
    normed = f", and acc_norm for {' and '.join(others)}" if others else ""
    versions = {result.provenance.versions.get("lm-eval", "unknown") for result in everything}
    words = {
        "hub": "the benchmarks, from the Hugging Face hub at pinned revisions",
        "builtin": "our own few in the benchmarks' schemas, not the benchmarks: do not compare "
        "with published numbers",
    }
    counts = {
        _label(task): int(defined(everything[0], metric_of(task, "samples")))
        for task in suite.tasks
    }
    amount = ", ".join(f"{label} {count}" for label, count in counts.items())
    if len(set(counts.values())) == 1:
        amount = f"{next(iter(counts.values()))} a task"
    notes = [
        f"{suite.num_fewshot} solved examples before each item, by lm-eval "
        f"{', '.join(sorted(versions))}; acc{normed}. In parentheses lm-eval's standard error over "
        "items.",
        f"Items: {words.get(suite.data, 'the benchmarks, from local files')}; {amount}.",
    ]
    cut = [defined(one, metric_of(task, "cut")) for one in everything for task in suite.tasks]
    if any(cut):
        notes.append(
            f"Requests longer than the model's context lose their first tokens: {min(cut):.0%} to "
            f"{max(cut):.0%} of a task's requests here."
        )
    trained = [row for row in view.rows if not row.pretrained]
    if trained:
        notes.append(training_note(trained, view.trained(*trained)))
    if len(trained) < len(view.rows):
        notes.append("Models from elsewhere have one value for all seeds.")
    if view.compared:
        notes.append(f"Δ: paired difference over seeds, {view.compared_with()}.")
    return notes


def _drawn(view: View[Options]) -> Section:
    """What is drawn: nothing published beside items that stand in for the benchmarks."""
    stand_in = view.suite.stand_in
    if stand_in is not None:
        view = replace(view, artifact=view.artifact.model_copy(update={"paper": None}))
    part = section(view)
    return part.model_copy(update={"title": stand_in_title(part.title, stand_in)})


def _panel(axes: "Axes", part: Section, look: dict[str, Look]) -> None:
    columns = [column for column in part.visible() if DIFFERENCE not in column.id]
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
    axes.set_xticks(range(len(columns)), [column.header.removesuffix(" ↑") for column in columns])
    for edge in range(len(columns) - 1):
        axes.axvline(edge + 0.5, color=FAINT, lw=1.4 if edge == len(columns) - 2 else 0.6)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.tick_params(axis="x", length=0)
    tidy(axes, x="", y="accuracy, %", title=part.title)
    axes.grid(axis="x", visible=False)


def _point(axes: "Axes", x: float, step: float, cell: Cell, error: Cell | None, look: Look) -> None:
    """Ours with its interval, and beside it the published value."""
    published = x if cell.value is None else x + step / 4
    if cell.paper_value is not None:
        axes.plot([published], [cell.paper_value], look.marker, mec=look.colour, mfc="white", ms=5)
    if cell.value is None:
        return
    at = x if cell.paper_value is None else x - step / 4
    low, high = cell.ci_low, cell.ci_high
    if (low is None or high is None) and error is not None and error.value is not None:
        reach = _NORMAL * error.value
        low, high = cell.value - reach, cell.value + reach
    if low is not None and high is not None:
        axes.plot([at, at], [low, high], color=look.colour, lw=1.6)
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
