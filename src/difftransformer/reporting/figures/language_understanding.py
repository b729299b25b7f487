"""Language understanding as a picture: points with intervals by task, one panel a section."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.conditions import stand_in_title
from difftransformer.reporting.document import Cell, Section
from difftransformer.reporting.drawing import (
    FAINT,
    SOFT,
    Look,
    legend_below,
    looks,
    printable,
    tidy,
)
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.language_understanding import (
    ERROR,
    GUESSING,
    evaluations,
    language_understanding,
    stand_in,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_BREADTH = 0.72
_NORMAL = 1.96  # of standard errors to either side of an interval of 95%


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw one panel a section, tasks from left to right; the legend stands once."""
    import matplotlib.pyplot as plt

    del histories  # nothing here happens while training
    measured = [_measured(artifact, part, results) for part in artifact.sections]
    rows = list(dict.fromkeys(row.run for part in measured for row in part.rows))
    look = looks([run for run in rows if run != GUESSING])
    figure, grid = plt.subplots(
        len(measured), 1, figsize=(10, 1.2 + 3.3 * len(measured)), layout="constrained",
        squeeze=False, sharey=True,
    )  # fmt: skip
    for axes, section in zip(grid[:, 0], measured, strict=True):
        _panel(axes, section, look)
    low, high = grid[0, 0].get_ylim()  # of all panels, so after the last one
    grid[0, 0].set_ylim(max(low, -3), min(high, 103))  # intervals of few items leave 0 to 100
    legend_below(figure, handles=_legend(artifact, measured, look))
    return figure


def _measured(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """What is drawn: nothing published beside items that stand in for the benchmarks."""
    items = stand_in(
        [one for row in part.rows for one in evaluations(artifact, part, row, results)]
    )
    paper = artifact.paper if items is None else None
    section = language_understanding(artifact.model_copy(update={"paper": paper}), part, results)
    return section.model_copy(update={"title": stand_in_title(section.title, items)})


def _panel(axes: "Axes", section: Section, look: dict[str, Look]) -> None:
    columns = [column for column in section.visible() if "difference" not in column.id]
    shown = [row.run for row in section.rows if row.run != GUESSING]
    step = _BREADTH / len(shown)
    for place, column in enumerate(columns):
        chance = section.cell(GUESSING, column.id)
        assert chance is not None and chance.value is not None
        axes.hlines(chance.value, place - 0.45, place + 0.45, color=SOFT, lw=1.1, ls=(0, (2, 1.5)))
        for index, run in enumerate(shown):
            cell = section.cell(run, column.id)
            error = section.cell(run, column.id + ERROR)
            if cell is not None:
                x = place + (index - (len(shown) - 1) / 2) * step
                _point(axes, x, step, cell, error, look[run])
    axes.set_xticks(range(len(columns)), [column.header.removesuffix(" ↑") for column in columns])
    for edge in range(len(columns) - 1):
        axes.axvline(edge + 0.5, color=FAINT, lw=1.4 if edge == len(columns) - 2 else 0.6)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.tick_params(axis="x", length=0)
    tidy(axes, x="", y="accuracy, %", title=section.title)
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


def _legend(
    artifact: ArtifactSlice, sections: list[Section], look: dict[str, Look]
) -> list["Line2D"]:
    from matplotlib.lines import Line2D

    labels = {row.run: row.label for section in sections for row in section.rows}
    ours = {row.run for part in artifact.sections for row in part.rows}
    handles = [
        Line2D(
            [], [], marker=one.marker, color=one.colour, mfc=one.colour if run in ours else "white",
            ls="", ms=6, label=printable(labels[run]),
        )
        for run, one in look.items()
    ]  # fmt: skip
    cells = [cell for section in sections for cell in section.cells if cell.row in ours]
    if artifact.paper is not None and any(cell.paper_value is not None for cell in cells):
        label = f"published ({artifact.paper.scale})"
        handles.append(Line2D([], [], marker="o", mec=SOFT, mfc="white", ls="", ms=6, label=label))
    return [*handles, Line2D([], [], color=SOFT, lw=1.1, ls=(0, (2, 1.5)), label="guessing")]
