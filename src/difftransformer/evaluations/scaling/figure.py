"""Figures 3a and 3b: loss by size or tokens with fitted curves, beside the published points."""

from collections.abc import Sequence

from difftransformer.config.artifact_slices import FamilySlice
from difftransformer.config.papers import PaperTable
from difftransformer.evaluations.scaling.curves import COUNTS, Curves, published_fits
from difftransformer.evaluations.scaling.power_law import EqualLoss, PowerLaw
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
    """Draw the measured points and their curves, and the published points if there are some."""
    paper = view.artifact.paper
    styles = looks({family.run: family.look for family in view.part.families})
    columns = 1 if paper is None else 2
    fig, (axs,) = panels(1, columns, (5.5 * columns, 4.6))
    _measured(axs[0], view, styles)
    signs = row_signs(view.part.families, styles, line=0, mark=5.5)
    if paper is not None:
        _published(axs[1], view, paper, styles)
        signs.append(sign("published", hollow=True))
    signs.append(sign("fitted", _FIT, line=1.2, mark=0))
    if any(_is_arrow(text) for axes in axs for text in axes.texts):
        signs.append(sign("equal loss", _ARROW, line=1.2))
    legend_below(fig, signs, ncols=6)
    return fig


def _is_arrow(text: object) -> bool:
    return getattr(text, "arrow_patch", None) is not None


def _measured(axes: Axes, view: View[Options], styles: dict[str, Look]) -> None:
    """Draw points with the range of their seeds, fitted curves, and the arrow of equal loss."""
    curves, texts = Curves(view), []
    points = [
        Point(line.family.run, point.x, seed.value, seed.seed)
        for line in curves.lines
        for point in line.points
        for seed in point.seeds
        if seed.value is not None
    ]
    lines(axes, points, styles, marks=5.5, lw=0, err_style="bars", err_kws={"elinewidth": 1.6})
    for family, _ in curves.lines:
        _curve(axes, family.run, curves.curve(family.run, curves.all_seeds), styles)
        if family.against is not None:
            equal = curves.equal_loss(family, curves.compare_x(family.run), curves.all_seeds)
            texts.append(_equal_loss(axes, view, family, equal))
    _finish(axes, view.options, f"Rebuilt, scale {view.artifact.scale}", texts)


def _published(axes: Axes, view: View[Options], paper: PaperTable, styles: dict[str, Look]) -> None:
    """Draw published points, the curves we fit to them, and in brackets the ratio of the paper."""
    (curves, equal_losses), texts = published_fits(view, paper), []
    for run, series in paper.series.items():
        points = over_seeds(run, series.x, [series.y])
        lines(axes, points, styles, **(PUBLISHED | {"marks": 5.5, "lw": 0}))
        _curve(axes, run, curves[run], styles)
    for row, (family, equal) in equal_losses.items():
        stated = Paper(paper).number(row, "equal_loss_ratio")
        brackets = "" if stated is None else f" [{stated:.1%}]"
        texts.append(_equal_loss(axes, view, family, equal) + brackets)
    _finish(axes, view.options, "Published points, our fit", texts)


def _curve(axes: Axes, run: str, curve: PowerLaw, styles: dict[str, Look]) -> None:
    span = curve.high / curve.low
    grid = [curve.low * span ** (step / _STEPS) for step in range(_STEPS + 1)]
    dashed = {run: styles[run]._replace(dash=_FIT.dash)}
    lines(axes, over_seeds(run, grid, [[curve.loss(x) for x in grid]]), dashed, lw=1.2)


def _equal_loss(axes: Axes, view: View[Options], family: FamilySlice, equal: EqualLoss) -> str:
    """Join the two x of equal loss by an arrow if both are in range; return the text about them."""
    labels = {family.run: printable(family.label) for family in view.part.families}
    model, baseline = labels[family.run], labels[str(family.against)]
    if equal.equal_x is None or equal.ratio is None:
        return f"{model} at {count(equal.x)}: {baseline} of equal loss\nbeyond the measured range"
    axes.annotate(
        "", xy=(equal.equal_x, equal.loss), xytext=(equal.x, equal.loss), zorder=4,
        arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.2, "shrinkA": 0, "shrinkB": 0},
    )  # fmt: skip
    return f"{model} at {count(equal.x)} = {baseline} at {count(equal.equal_x)}: {equal.ratio:.1%}"


def _finish(axes: Axes, options: Options, title: str, texts: Sequence[str]) -> None:
    """Label the axes, and write the texts where falling curves leave room."""
    round_log_ticks(axes, lambda x, _: count(x))
    axes.text(
        0.98, 0.97, "\n".join(texts), transform=axes.transAxes, ha="right", va="top", fontsize=8,
        linespacing=1.5, bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
    )  # fmt: skip
    name = "training tokens"
    if options.by == "size":
        name = f"parameters ({COUNTS[options.parameters]})"
    tidy(axes, x=name, y="validation loss, nats per token", title=title)
