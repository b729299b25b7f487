"""Table 6 as a picture: loss curves, their differences to a row, and a forest plot at the end."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.reporting.cells import DIFFERENCE
from difftransformer.reporting.collect import Results
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import INK, Look, looks
from difftransformer.reporting.forest import estimate, name_lines, seed_signs, sign
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
        estimate(axes, place, cell, look[row.run])
    axes.locator_params(axis="x", nbins=5)  # labels of small steps touch where there are more
    name = LOSSES[key][0].removesuffix(" ↓")
    name_lines(axes, [row.label for row in rows], x="nats per token", title=f"Δ {name} at the end")


def _legend(bottom: "SubFigure", artifact: ArtifactSlice) -> None:
    """Name the signs of the forest plot, those that are drawn."""
    signs = seed_signs(artifact.seeds)
    if artifact.paper is not None:
        signs.append(sign("x", f"published ({artifact.paper.scale})"))
    bottom.legend(handles=signs, loc="outside lower center", ncols=len(signs), fontsize=8)
