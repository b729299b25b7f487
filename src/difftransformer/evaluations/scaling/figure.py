"""Figures 3a and 3b: loss by size or tokens with fitted curves; beside it the published points."""

from collections.abc import Sequence

from difftransformer.config.artifact_slices import FamilySlice
from difftransformer.config.papers import PaperTable
from difftransformer.evaluations.scaling.curves import COUNTS, Curves, published_fits
from difftransformer.evaluations.scaling.power_law import PowerLaw, Reading
from difftransformer.evaluations.scaling.settings import Options
from difftransformer.reporting.cells import Paper
from difftransformer.reporting.charts import PUBLISHED, Point, lines, over_seeds
from difftransformer.reporting.drawing import (
    INK,
    SOFT,
    Axes,
    Figure,
    Look,
    legend_below,
    looks,
    printable,
    sign,
    tidy,
)
from difftransformer.reporting.numbers import count
from difftransformer.reporting.panels import panels, round_log_ticks, row_signs
from difftransformer.reporting.view import View

_STEPS = 200
_FIT, _ARROW = Look(SOFT, (4.0, 2.0), ""), Look(INK, (), ">")


def figure(view: View[Options]) -> Figure:
    """Draw the first section."""
    paper, look = view.artifact.paper, looks({one.run: one.look for one in view.part.families})
    number = 1 if paper is None else 2
    figure, (places,) = panels(1, number, (5.5 * number, 4.6))
    _ours(places[0], view, look)
    signs = row_signs(view.part.families, look, line=0, mark=5.5)
    if paper is not None:
        _published(places[1], view, paper, look)
        signs.append(sign("published", hollow=True))
    signs.append(sign("fitted", _FIT, line=1.2, mark=0))
    if any(_is_arrow(text) for axes in places for text in axes.texts):
        signs.append(sign("equal loss", _ARROW, line=1.2))
    legend_below(figure, signs, ncols=6)
    return figure


def _is_arrow(text: object) -> bool:
    return getattr(text, "arrow_patch", None) is not None


def _ours(axes: Axes, view: View[Options], look: dict[str, Look]) -> None:
    """Points with the range of their seeds, fitted curves, and the arrow of equal loss."""
    curves, said = Curves(view), []
    points = [
        Point(family.run, point.x, seed.value, seed.seed)
        for family, of_family in curves.lines
        for point in of_family
        for seed in point.seeds
        if seed.value is not None
    ]
    lines(axes, points, look, marks=5.5, lw=0, err_style="bars", err_kws={"elinewidth": 1.6})
    for family, _ in curves.lines:
        _curve(axes, family.run, curves.curve(family.run, curves.everyone), look)
        if family.against is not None:
            reading = curves.reading(family, curves.read_at(family.run), curves.everyone)
            said.append(_equal(axes, view, family, reading))
    _finish(axes, view.options, f"Rebuilt, scale {view.artifact.scale}", said)


def _published(axes: Axes, view: View[Options], paper: PaperTable, look: dict[str, Look]) -> None:
    """Published points, the curves we fit to them, and in brackets what the paper reads."""
    (curves, readings), said = published_fits(view, paper), []
    for run, series in paper.series.items():
        points = over_seeds(run, series.x, [series.y])
        lines(axes, points, look, **(PUBLISHED | {"marks": 5.5, "lw": 0}))
        _curve(axes, run, curves[run], look)
    for row, (family, reading) in readings.items():
        stated = Paper(paper).number(row, "equal_ratio")
        words = "" if stated is None else f" [{stated:.1%}]"
        said.append(_equal(axes, view, family, reading) + words)
    _finish(axes, view.options, "Published points, our fit", said)


def _curve(axes: Axes, run: str, curve: PowerLaw, look: dict[str, Look]) -> None:
    span = curve.high / curve.low
    x = [curve.low * span ** (step / _STEPS) for step in range(_STEPS + 1)]
    dashed = {run: look[run]._replace(dash=_FIT.dash)}
    lines(axes, over_seeds(run, x, [[curve.loss(one) for one in x]]), dashed, lw=1.2)


def _equal(axes: Axes, view: View[Options], family: FamilySlice, reading: Reading) -> str:
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


def _finish(axes: Axes, options: Options, title: str, said: Sequence[str]) -> None:
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
