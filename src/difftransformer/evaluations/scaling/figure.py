"""Figures 3a and 3b: loss by model size or tokens with fitted curves, beside published points."""

from collections.abc import Sequence

from difftransformer.config.papers import PaperTable
from difftransformer.config.resolved_artifacts import ResolvedGridRow
from difftransformer.evaluations.scaling.curves import COUNTS, SIZE, Curves, published_fits
from difftransformer.evaluations.scaling.power_law import EqualLoss, PowerLaw
from difftransformer.evaluations.scaling.settings import Options
from difftransformer.reporting.cells import PublishedValues
from difftransformer.reporting.charts import PUBLISHED_STYLE, Point, draw_lines, seed_points
from difftransformer.reporting.drawing import (
    INK,
    SOFT,
    Axes,
    Figure,
    RowStyle,
    escape_label,
    label_axes,
    legend_below,
    legend_handle,
    row_styles,
)
from difftransformer.reporting.number_format import format_count
from difftransformer.reporting.panels import row_legend, set_decade_ticks, subplot_grid
from difftransformer.reporting.section_context import SectionContext

_STEPS = 200
_FIT, _ARROW = RowStyle(SOFT, (4.0, 2.0), ""), RowStyle(INK, (), ">")


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the measured losses and fitted curves, beside the published points if there are any."""
    paper = context.artifact.paper
    styles = row_styles({grid_row.run: grid_row.color for grid_row in context.section.grid_rows})
    columns = 1 if paper is None else 2
    fig, (axs,) = subplot_grid(1, columns, (5.5 * columns, 4.6))
    _measured(axs[0], context, styles)
    signs = row_legend(context.section.grid_rows, styles, line_width=0, marker_size=5.5)
    if paper is not None:
        _published(axs[1], context, paper, styles)
        signs.append(legend_handle("published", hollow=True))
    signs.append(legend_handle("fitted", _FIT, line_width=1.2, marker_size=0))
    if any(_is_arrow(text) for axes in axs for text in axes.texts):
        signs.append(legend_handle("equal loss", _ARROW, line_width=1.2))
    legend_below(fig, signs, ncols=6)
    return fig


def _is_arrow(text: object) -> bool:
    return getattr(text, "arrow_patch", None) is not None


def _measured(axes: Axes, context: SectionContext[Options], styles: dict[str, RowStyle]) -> None:
    """Draw points with the range of their seeds, fitted curves, and the arrow of equal loss."""
    curves, texts = Curves(context), []
    points = [
        Point(line.grid_row.run, point.x, seed.value, seed.seed)
        for line in curves.lines
        for point in line.points
        for seed in point.seeds
        if seed.value is not None
    ]
    draw_lines(
        axes, points, styles, marker_size=5.5, lw=0, err_style="bars", err_kws={"elinewidth": 1.6}
    )
    for grid_row, _ in curves.lines:
        _curve(axes, grid_row.run, curves.curve(grid_row.run, curves.all_seeds), styles)
        if grid_row.baseline is not None:
            equal = curves.equal_loss(grid_row, curves.compare_x(grid_row.run), curves.all_seeds)
            texts.append(_equal_loss(axes, context, grid_row, equal))
    _finish(axes, context.options, f"Rebuilt, scale {context.artifact.scale}", texts)


def _published(
    axes: Axes, context: SectionContext[Options], paper: PaperTable, styles: dict[str, RowStyle]
) -> None:
    """Draw published points, the curves we fit to them, and in brackets the ratio of the paper."""
    (curves, equal_losses), texts = published_fits(context, paper), []
    for run, series in paper.series.items():
        points = seed_points(run, series.x, [series.y])
        draw_lines(axes, points, styles, **(PUBLISHED_STYLE | {"marker_size": 5.5, "lw": 0}))
        _curve(axes, run, curves[run], styles)
    for row, (grid_row, equal) in equal_losses.items():
        stated = PublishedValues(paper).number(row, "equal_loss_ratio")
        brackets = "" if stated is None else f" [{stated:.1%}]"
        texts.append(_equal_loss(axes, context, grid_row, equal) + brackets)
    _finish(axes, context.options, "Published points, our fit", texts)


def _curve(axes: Axes, run: str, curve: PowerLaw, styles: dict[str, RowStyle]) -> None:
    span = curve.high / curve.low
    grid = [curve.low * span ** (step / _STEPS) for step in range(_STEPS + 1)]
    dashed = {run: styles[run]._replace(dash=_FIT.dash)}
    draw_lines(axes, seed_points(run, grid, [[curve.loss(x) for x in grid]]), dashed, lw=1.2)


def _equal_loss(
    axes: Axes, context: SectionContext[Options], grid_row: ResolvedGridRow, equal: EqualLoss
) -> str:
    """Join the two x of equal loss by an arrow if both are in range; return the text about them."""
    labels = {grid_row.run: escape_label(grid_row.label) for grid_row in context.section.grid_rows}
    model, baseline = labels[grid_row.run], labels[str(grid_row.baseline)]
    if equal.equal_x is None or equal.ratio is None:
        return (
            f"{model} at {format_count(equal.x)}: {baseline} of equal loss\nbeyond the measured "
            "range"
        )
    axes.annotate(
        "", xy=(equal.equal_x, equal.loss), xytext=(equal.x, equal.loss), zorder=4,
        arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.2, "shrinkA": 0, "shrinkB": 0},
    )  # fmt: skip
    return (
        f"{model} at {format_count(equal.x)} = {baseline} at {format_count(equal.equal_x)}: "
        f"{equal.ratio:.1%}"
    )


def _finish(axes: Axes, options: Options, title: str, texts: Sequence[str]) -> None:
    """Label the axes, and write the texts where falling curves leave room."""
    set_decade_ticks(axes, lambda x, _: format_count(x))
    axes.text(
        0.98, 0.97, "\n".join(texts), transform=axes.transAxes, ha="right", va="top", fontsize=8,
        linespacing=1.5, bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
    )  # fmt: skip
    name = "training tokens"
    if options.by == "size":
        name = f"parameters ({COUNTS[SIZE]})"
    label_axes(axes, x=name, y="validation loss, nats per token", title=title)
