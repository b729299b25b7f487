"""Figures 3a and 3b: loss by size or tokens with fitted curves; beside it the published points."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from difftransformer.config.artifact_slices import ArtifactSlice, FamilySlice, SectionSlice
from difftransformer.config.paper_values import PaperTable
from difftransformer.reporting.cells import Paper
from difftransformer.reporting.collect import Results
from difftransformer.reporting.drawing import INK, SOFT, Look, legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.scaling_published import (
    published_curves,
    published_readings,
)
from difftransformer.reporting.numbers import count
from difftransformer.reporting.scaling_curves import COUNTS, Curves, Line, measured_lines
from difftransformer.reporting.scaling_fit import PowerLaw, Reading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_STEPS = 200
_DASH = (0, (4.0, 2.0))


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw the figure of the first section."""
    import matplotlib.pyplot as plt
    from matplotlib.text import Annotation

    del histories  # the results know theirs
    part, paper = artifact.sections[0], artifact.paper
    assert part.scaling is not None
    look = looks([family.run for family in part.families])
    panels = 1 if paper is None else 2
    figure, grid = plt.subplots(
        1, panels, figsize=(5.5 * panels, 4.6), layout="constrained", squeeze=False
    )
    lines = measured_lines(artifact, part, results)
    curves = Curves(lines, part.scaling, len(artifact.seeds))
    _ours(grid[0][0], artifact, part, lines, curves, look)
    if paper is not None:
        _published(grid[0][1], part, paper, look)
    arrows = any(isinstance(text, Annotation) for axes in grid[0] for text in axes.texts)
    handles = _legend(part, look, published=paper is not None, arrows=arrows)
    legend_below(figure, handles=handles, ncols=6)
    return figure


def _ours(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    lines: Sequence[Line],
    curves: Curves,
    look: dict[str, Look],
) -> None:
    """Points with the range of their seeds, fitted curves, and the arrow of equal loss."""
    said = []
    for line in lines:
        family, one = line.family, look[line.family.run]
        for point in line.points:
            values = [seed.value for seed in point.seeds if seed.value is not None]
            axes.plot([point.x] * 2, [min(values), max(values)], color=one.colour, lw=1.6)
            _dot(axes, point.x, point.mean(curves.everyone), one)
        _curve(axes, curves.curve(family.run, curves.everyone), one)
        if family.against is not None:
            reading = curves.reading(family, curves.read_at(family.run), curves.everyone)
            said.append(_equal(axes, part, family, reading))
    _finish(axes, part, f"Rebuilt, scale {artifact.scale}", said)


def _published(axes: "Axes", part: SectionSlice, paper: PaperTable, look: dict[str, Look]) -> None:
    """Published points, the curves we fit to them, and in brackets what the paper reads."""
    assert part.scaling is not None
    curves = published_curves(paper, part.scaling)
    for run, series in paper.series.items():
        for x, y in zip(series.x, series.y, strict=True):
            _dot(axes, x, y, look[run], hollow=True)
        _curve(axes, curves[run], look[run])
    said = []
    for row, (family, reading) in published_readings(paper, part.families, curves).items():
        stated = Paper(paper).number(row, "equal_ratio")
        words = "" if stated is None else f" [{stated:.1%}]"
        said.append(_equal(axes, part, family, reading) + words)
    _finish(axes, part, "Published points, our fit", said)


def _dot(axes: "Axes", x: float, y: float, look: Look, *, hollow: bool = False) -> None:
    face = "white" if hollow else look.colour
    axes.plot([x], [y], look.marker, color=look.colour, mfc=face, ms=5.5, mew=1.2, zorder=3)


def _curve(axes: "Axes", curve: PowerLaw, look: Look) -> None:
    span = curve.high / curve.low
    x = [curve.low * span ** (step / _STEPS) for step in range(_STEPS + 1)]
    axes.plot(x, [curve.loss(one) for one in x], color=look.colour, lw=1.2, ls=_DASH)


def _equal(axes: "Axes", part: SectionSlice, family: FamilySlice, reading: Reading) -> str:
    """Join two x of equal loss by an arrow where both were measured, and say which they are."""
    labels = {one.run: printable(one.label) for one in part.families}
    ours, theirs = labels[family.run], labels[str(family.against)]
    if reading.equal_x is None or reading.ratio is None:
        return f"{ours} at {count(reading.x)}: {theirs} of equal loss\nbeyond the measured range"
    axes.annotate(
        "", xy=(reading.equal_x, reading.loss), xytext=(reading.x, reading.loss), zorder=4,
        arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.2, "shrinkA": 0, "shrinkB": 0},
    )  # fmt: skip
    return (
        f"{ours} at {count(reading.x)} = {theirs} at {count(reading.equal_x)}: {reading.ratio:.1%}"
    )


def _finish(axes: "Axes", part: SectionSlice, title: str, said: Sequence[str]) -> None:
    """Log axis with a few round numbers; the equal losses stand where falling curves leave room."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: count(x)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.text(
        0.98, 0.97, "\n".join(said), transform=axes.transAxes, ha="right", va="top", fontsize=8,
        linespacing=1.5, bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
    )  # fmt: skip
    name = "training tokens"
    if part.measures == "size_scaling":
        assert part.scaling is not None
        name = f"parameters ({COUNTS[part.scaling.parameters]})"
    tidy(axes, x=name, y="validation loss, nats per token", title=title)


def _legend(
    part: SectionSlice, look: dict[str, Look], *, published: bool, arrows: bool
) -> list["Line2D"]:
    from matplotlib.lines import Line2D

    def sign(label: str, **style: Any) -> Line2D:
        return Line2D([], [], label=printable(label), ms=5.5, **style)

    handles = []
    for family in part.families:
        one = look[family.run]
        handles.append(sign(family.label, color=one.colour, marker=one.marker, ls=""))
    if published:
        handles.append(sign("published", color=SOFT, marker="o", mfc="white", ls=""))
    handles.append(sign("fitted", color=SOFT, ls=_DASH, lw=1.2))
    if arrows:
        handles.append(sign("equal loss", color=INK, marker=">", lw=1.2))
    return handles
