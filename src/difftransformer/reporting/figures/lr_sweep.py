"""The learning-rate sweep as a picture: one panel a task, one line an architecture."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.curves import Curve, draw, mark
from difftransformer.reporting.drawing import SOFT, Look, legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.learning_rate import Outcome, metric_name, outcomes, rates
from difftransformer.reporting.numbers import rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw one panel a section; the legend stands once where all panels show the same rows."""
    import matplotlib.pyplot as plt

    del histories  # a sweep is judged by its last step
    parts = artifact.sections
    figure, grid = plt.subplots(
        1, len(parts), figsize=(5.5 * len(parts), 4.6), layout="constrained", squeeze=False
    )
    labels: list[str] = list(dict.fromkeys(row.label for part in parts for row in part.rows))
    look = looks(labels)
    for axes, part in zip(grid[0], parts, strict=True):
        _panel(axes, artifact, part, results, look)
    named = {
        label: handle
        for axes in grid[0]
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    handles = [named[printable(label)] for label in labels] + _signs()
    legend_below(figure, handles=handles, ncols=2 * len(parts))
    return figure


def _signs() -> list["Line2D"]:
    from matplotlib.lines import Line2D

    star = Line2D([], [], color=SOFT, marker="*", ls="", ms=10, label="best mean")
    ring = Line2D([], [], color=SOFT, marker="o", mfc="none", ls="", ms=10, label="in use")
    return [star, ring]


def _panel(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    look: dict[str, Look],
) -> None:
    for one in outcomes(artifact, part, results):
        _line(axes, one, look[one.row.label])
    axes.set_xscale("log")
    axes.set_xticks(rates(part), [rate(value) for value in rates(part)])
    axes.minorticks_off()
    tidy(
        axes,
        x="peak learning rate",
        y=f"{metric_name(str(part.metric))} ({part.better} is better)",
        title=part.title,
    )


def _line(axes: "Axes", one: Outcome, look: Look) -> None:
    curve = Curve([], [], [], [])
    for learning_rate, cell in one.cells.items():
        values = list(cell.by_seed().values())
        if cell.value is not None:
            for column, value in zip(
                curve, (learning_rate, cell.value, min(values), max(values)), strict=True
            ):
                column.append(value)
    draw(axes, curve, look, printable(one.row.label))
    partial = [swept for swept, cell in one.cells.items() if cell.n < len(cell.seeds)]
    mark(axes, curve, look._replace(marker="o"), partial, size=3.5)
    points = dict(zip(curve.x, curve.mean, strict=True))
    if one.chosen is not None and one.chosen.learning_rate in points:
        at = one.chosen.learning_rate
        axes.plot([at], [points[at]], "o", mfc="none", mec=look.colour, ms=13, mew=1.4)
    if one.best.learning_rate in points:
        at = one.best.learning_rate
        axes.plot([at], [points[at]], "*", color=look.colour, ms=11, mec="white", mew=0.6)
