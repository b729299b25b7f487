"""Figures 3a and 3b: loss by size or tokens with fitted curves; beside it the published points."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from difftransformer.config.artifact_slices import FamilySlice
from difftransformer.config.papers import PaperTable
from difftransformer.measurements.scaling.curves import COUNTS, Curves, published_fits
from difftransformer.measurements.scaling.power_law import PowerLaw, Reading
from difftransformer.measurements.scaling.settings import Options
from difftransformer.reporting.cells import Paper
from difftransformer.reporting.drawing import INK, SOFT, Look, legend_below, looks, printable, tidy
from difftransformer.reporting.numbers import count
from difftransformer.reporting.panels import panels, round_log_ticks
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_STEPS = 200
_DASH = (0, (4.0, 2.0))


def figure(view: View[Options]) -> "Figure":
    """Draw the first section."""
    from matplotlib.text import Annotation

    paper, look = view.artifact.paper, looks({one.run: one.look for one in view.part.families})
    number = 1 if paper is None else 2
    figure, (places,) = panels(1, number, (5.5 * number, 4.6))
    _ours(places[0], view, look)
    if paper is not None:
        _published(places[1], view, paper, look)
    arrows = any(isinstance(text, Annotation) for axes in places for text in axes.texts)
    handles = _legend(view, look, published=paper is not None, arrows=arrows)
    legend_below(figure, handles=handles, ncols=6)
    return figure


def _ours(axes: "Axes", view: View[Options], look: dict[str, Look]) -> None:
    """Points with the range of their seeds, fitted curves, and the arrow of equal loss."""
    curves, said = Curves(view), []
    for family, points in curves.lines:
        one = look[family.run]
        for point in points:
            values = [seed.value for seed in point.seeds if seed.value is not None]
            axes.plot([point.x] * 2, [min(values), max(values)], color=one.colour, lw=1.6)
            _dot(axes, point.x, point.mean(curves.everyone), one)
        _curve(axes, curves.curve(family.run, curves.everyone), one)
        if family.against is not None:
            reading = curves.reading(family, curves.read_at(family.run), curves.everyone)
            said.append(_equal(axes, view, family, reading))
    _finish(axes, view.options, f"Rebuilt, scale {view.artifact.scale}", said)


def _published(axes: "Axes", view: View[Options], paper: PaperTable, look: dict[str, Look]) -> None:
    """Published points, the curves we fit to them, and in brackets what the paper reads."""
    (curves, readings), said = published_fits(view, paper), []
    for run, series in paper.series.items():
        for x, y in zip(series.x, series.y, strict=True):
            _dot(axes, x, y, look[run], hollow=True)
        _curve(axes, curves[run], look[run])
    for row, (family, reading) in readings.items():
        stated = Paper(paper).number(row, "equal_ratio")
        words = "" if stated is None else f" [{stated:.1%}]"
        said.append(_equal(axes, view, family, reading) + words)
    _finish(axes, view.options, "Published points, our fit", said)


def _dot(axes: "Axes", x: float, y: float, look: Look, *, hollow: bool = False) -> None:
    face = "white" if hollow else look.colour
    axes.plot([x], [y], look.marker, color=look.colour, mfc=face, ms=5.5, mew=1.2, zorder=3)


def _curve(axes: "Axes", curve: PowerLaw, look: Look) -> None:
    span = curve.high / curve.low
    x = [curve.low * span ** (step / _STEPS) for step in range(_STEPS + 1)]
    axes.plot(x, [curve.loss(one) for one in x], color=look.colour, lw=1.2, ls=_DASH)


def _equal(axes: "Axes", view: View[Options], family: FamilySlice, reading: Reading) -> str:
    """Join two x of equal loss by an arrow where both were measured, and say which they are."""
    labels = {one.run: printable(one.label) for one in view.part.families}
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


def _finish(axes: "Axes", options: Options, title: str, said: Sequence[str]) -> None:
    """Log axis with a few round numbers; the equal losses stand where falling curves leave room."""
    round_log_ticks(axes, lambda x, _: count(x))
    axes.text(
        0.98, 0.97, "\n".join(said), transform=axes.transAxes, ha="right", va="top", fontsize=8,
        linespacing=1.5, bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
    )  # fmt: skip
    name = "training tokens"
    if options.by == "size":
        name = f"parameters ({COUNTS[options.parameters]})"
    tidy(axes, x=name, y="validation loss, nats per token", title=title)


def _legend(
    view: View[Options], look: dict[str, Look], *, published: bool, arrows: bool
) -> list["Line2D"]:
    from matplotlib.lines import Line2D

    def sign(label: str, **style: Any) -> Line2D:
        return Line2D([], [], label=printable(label), ms=5.5, **style)

    handles = []
    for family in view.part.families:
        one = look[family.run]
        handles.append(sign(family.label, color=one.colour, marker=one.marker, ls=""))
    if published:
        handles.append(sign("published", color=SOFT, marker="o", mfc="white", ls=""))
    handles.append(sign("fitted", color=SOFT, ls=_DASH, lw=1.2))
    if arrows:
        handles.append(sign("equal loss", color=INK, marker=">", lw=1.2))
    return handles
