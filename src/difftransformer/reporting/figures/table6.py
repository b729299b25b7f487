"""Table 6 as a picture: loss curves, their differences to a row, and a forest plot at the end."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.reporting.cells import DIFFERENCE
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import Cell, Section
from difftransformer.reporting.drawing import INK, SOFT, Look, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.loss_panels import compared_rows, loss_curves, loss_differences
from difftransformer.reporting.measures.language_modelling import LOSSES, language_modelling

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw the figure of the first section; its rows but one are compared with that one."""
    import matplotlib.pyplot as plt

    part = artifact.sections[0]
    look = looks([row.run for row in part.rows])
    figure = plt.figure(figsize=(11, 7.4), layout="constrained")
    parts = figure.subfigures(2, 1, height_ratios=(1.2, 1), hspace=0.04, squeeze=False)
    top, bottom = parts.ravel()
    left, right = top.subplots(1, 2)
    loss_curves(left, artifact, part, histories, look)
    loss_differences(right, artifact, part, histories, look)
    handles, labels = left.get_legend_handles_labels()
    top.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8, handlelength=2.6)
    measured = language_modelling(artifact, part, results)
    for axes, key in zip(bottom.subplots(1, len(LOSSES), sharey=True), LOSSES, strict=True):
        _forest(axes, part, measured, key, look)
    _legend(bottom, artifact)
    return figure


def _forest(
    axes: "Axes", part: SectionSlice, measured: Section, key: str, look: dict[str, Look]
) -> None:
    rows = compared_rows(part)
    axes.axvline(0, color=INK, lw=0.8)
    for place, row in enumerate(rows):
        cell = measured.cell(row.run, key + DIFFERENCE)
        assert cell is not None
        _estimate(axes, place, cell, look[row.run])
    axes.set_yticks(range(len(rows)), [printable(row.label, 28) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    name = LOSSES[key][0].removesuffix(" ↓")
    tidy(axes, x="nats per token", y="", title=f"Δ {name} at the end")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def _legend(bottom: "SubFigure", artifact: ArtifactSlice) -> None:
    """Name the signs of the forest plot, those that are drawn."""
    from matplotlib.lines import Line2D

    def sign(marker: str, label: str, size: float, line: float = 0) -> Line2D:
        style = "-" if line else ""
        return Line2D([], [], color=SOFT, marker=marker, ls=style, lw=line, ms=size, label=label)

    signs = [sign("o", "one seed", 5)]
    if len(artifact.seeds) > 1:
        signs = [sign("o", "mean, 95% interval", 5, 1.8), sign(".", "one seed", 5)]
    if artifact.paper is not None:
        signs.append(sign("x", f"published ({artifact.paper.scale})", 5))
    bottom.legend(handles=signs, loc="outside lower center", ncols=len(signs), fontsize=8)


def _estimate(axes: "Axes", place: int, cell: Cell, look: Look) -> None:
    """One line of the forest: seeds, mean, interval, and the published difference."""
    seeds = [seed.value for seed in cell.seeds if seed.value is not None]
    if len(seeds) > 1:
        axes.plot(seeds, [place + 0.22] * len(seeds), ".", color=look.colour, ms=4, alpha=0.6)
    if cell.ci_low is not None and cell.ci_high is not None:
        axes.plot([cell.ci_low, cell.ci_high], [place, place], color=look.colour, lw=1.8)
    if cell.value is not None:
        axes.plot([cell.value], [place], look.marker, color=look.colour, ms=6)
    if cell.paper_value is not None:
        axes.plot([cell.paper_value], [place - 0.22], "x", color=SOFT, ms=5, mew=1.2)
