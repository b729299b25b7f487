"""Figure 4: cumulative loss by position, its paired difference, and the published curves."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.config.paper_values import PaperTable
from difftransformer.reporting.cells import DIFFERENCE
from difftransformer.reporting.collect import Results
from difftransformer.reporting.curves import Curve, draw, over_seeds
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import INK, Look, legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.nll_by_position import (
    column,
    nll_by_position,
    nll_differences,
    places,
    places_in,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHED = (0, (4, 2))


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw the figure of the first section; published curves have axes of their own."""
    import matplotlib.pyplot as plt

    del histories  # curves are over positions, not over steps
    part = artifact.sections[0]
    look = looks([row.run for row in part.rows])
    measured = nll_by_position(artifact, part, results)
    at = places(artifact, part, results)
    panels = 2 + (artifact.paper is not None)
    figure, grid = plt.subplots(
        1, panels, figsize=(3.75 * panels, 3.7), layout="constrained", squeeze=False
    )
    _curves(grid[0][0], part, measured, at, look)
    _differences(grid[0][1], part, nll_differences(part, measured), at, look)
    if artifact.paper is not None:
        _published(grid[0][2], part, artifact.paper, look)
    published = [] if artifact.paper is None else [grid[0][2]]
    legend_below(figure, grid[0][0], *published, ncols=6)
    return figure


def _curves(
    axes: "Axes", part: SectionSlice, measured: Section, at: list[int], look: dict[str, Look]
) -> None:
    for row in part.rows:
        _draw(axes, _curve(measured, row.run, at, ""), look[row.run], printable(row.label))
    _positions(axes, at)
    tidy(axes, x="position in the document (tokens)", y="nats per token", title="Cumulative NLL")


def _differences(
    axes: "Axes", part: SectionSlice, differences: Section, at: list[int], look: dict[str, Look]
) -> None:
    labels = {row.run: row.label for row in part.rows}
    axes.axhline(0, color=INK, lw=0.8)
    for row in part.rows:
        if row.against is None:
            continue
        _draw(axes, _curve(differences, row.run, at, DIFFERENCE), look[row.run], "")
        cells = [differences.cell(row.run, column(place) + DIFFERENCE) for place in at]
        for place, cell in zip(at, cells, strict=True):
            if cell is not None and cell.ci_low is not None and cell.ci_high is not None:
                axes.plot(
                    [place] * 2, [cell.ci_low, cell.ci_high], color=look[row.run].colour, lw=1.2
                )
    _positions(axes, at)
    names = {labels[row.against] for row in part.rows if row.against is not None}
    other = printable(names.pop()) if len(names) == 1 else "its reference"
    tidy(
        axes,
        x="position in the document (tokens)",
        y="nats per token",
        title=f"Difference to {other}, same seed",
    )


def _published(axes: "Axes", part: SectionSlice, paper: PaperTable, look: dict[str, Look]) -> None:
    for row in part.rows:
        if row.run not in paper.rows:
            continue
        values = paper.rows[row.run].values
        points = [
            (place, float(value))
            for place in places_in(values)
            if (value := values[column(place)]) is not None
        ]
        axes.plot(
            [place for place, _ in points],
            [value for _, value in points],
            look[row.run].marker,
            color=look[row.run].colour,
            ls=_DASHED,
            lw=1.4,
            ms=4.5,
            mfc="white",
            label=f"{printable(row.label)}, published",
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda place, _: _short(place, 1000))
    axes.minorticks_off()
    tidy(
        axes,
        x="position in the document (tokens)",
        y="nats per token (levels inferred)",
        title=f"Published: {paper.scale}",
    )


def _curve(section: Section, run: str, at: list[int], suffix: str) -> Curve:
    """Mean and range over seeds at each position."""
    by_place = []
    for place in at:
        cell = section.cell(run, column(place) + suffix)
        assert cell is not None
        by_place.append(list(cell.by_seed().values()))
    return over_seeds(at, list(zip(*by_place, strict=True)))


def _draw(axes: "Axes", curve: Curve, look: Look, label: str) -> None:
    draw(axes, curve, look, label)
    axes.plot(curve.x, curve.mean, look.marker, color=look.colour, ms=4, mew=0)


def _positions(axes: "Axes", at: list[int]) -> None:
    """Mark the doublings from the last position down: 512, 256, ..."""
    axes.set_xscale("log", base=2)
    ticks = [at[-1] >> shift for shift in range(at[-1].bit_length()) if at[-1] >> shift >= at[0]]
    shown = ticks[:: max(1, len(ticks) // 6)]
    axes.set_xticks(shown, [_short(tick, 1024) for tick in shown])
    axes.minorticks_off()


def _short(place: float, thousand: int) -> str:
    """Write a position shortly: 64K for 65536."""
    return f"{place / thousand:g}K" if place >= thousand else f"{place:g}"
