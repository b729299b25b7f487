"""Grids of axes, their ticks, and panels that several figures share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from difftransformer.config.resolved_artifacts import ResolvedGridRow, ResolvedRow
from difftransformer.reporting.charts import draw_lines, seed_points
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.drawing import (
    Axes,
    Figure,
    Line2D,
    RowStyle,
    SubFigure,
    escape_label,
    label_axes,
    legend_handle,
)
from difftransformer.reporting.section_context import SectionContext

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def subplot_grid(
    lines: int, columns: int, size: tuple[float, float], **shared: Any
) -> tuple[Figure, Any]:
    """Return a new figure and its axes [lines, columns]; ``shared`` are options of `subplots`."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        lines, columns, figsize=size, layout="constrained", squeeze=False, **shared
    )
    return figure, axes


def stacked_subfigures(
    size: tuple[float, float], heights: Sequence[float] = (1, 1), space: float | None = None
) -> tuple[Figure, SubFigure, SubFigure]:
    """Return a new figure with its upper and its lower subfigure."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=size, layout="constrained")
    parts = figure.subfigures(2, 1, squeeze=False, height_ratios=heights, hspace=space)
    top, bottom = parts.ravel()
    return figure, top, bottom


def set_log_ticks(
    axes: Axes, ticks: Sequence[float], labels: Sequence[str], *, base: int = 10, **style: Any
) -> None:
    """Make the x axis logarithmic, with ticks at the given values only."""
    axes.set_xscale("log", base=base)
    axes.set_xticks(ticks, labels, **style)
    axes.minorticks_off()


def set_decade_ticks(axes: Axes, write: "str | Callable[[float, float], str]") -> None:
    """Make the x axis logarithmic, with ticks at 1, 2 and 5 of each decade."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(write)
    axes.xaxis.set_minor_formatter(NullFormatter())


def axes_per_row(
    figure: Figure | SubFigure, rows: Sequence[ResolvedRow], columns: int
) -> list[tuple[Axes, ResolvedRow, bool]]:
    """Return one (axes, row, is_lowest) triple per row; all axes share their scales.

    is_lowest says whether the axes are the lowest of their column.
    """
    lines = -(-len(rows) // columns)
    grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes in grid[len(rows) :]:
        axes.set_visible(False)
    cells = []
    for index, (axes, row) in enumerate(zip(grid, rows, strict=False)):
        is_lowest = index + columns >= len(rows)
        axes.tick_params(labelbottom=is_lowest)
        cells.append((axes, row, is_lowest))
    return cells


def mark_x_values(axes: Axes, x: Sequence[float], index: int, style: RowStyle) -> None:
    """Draw markers at the x values just above the x axis; ``index`` of the row sets the height."""
    axes.plot(
        x, [0.03 + 0.035 * index] * len(x), style.marker, color=style.color, ms=4.5, mew=0,
        transform=axes.get_xaxis_transform(), clip_on=False,
    )  # fmt: skip


def draw_metric_curves(
    axes: Axes,
    context: SectionContext[Any],
    x: Sequence[float],
    names: Sequence[str],
    *,
    marker_size: float,
) -> None:
    """Draw a curve per row through its values of the metrics ``names`` at ``x``.

    Raises:
        UserError: A result is missing or lacks a metric.
    """
    for row in context.rows:
        by_seed = [
            [require_metric(result, name) for name in names] for result in context.eval_results(row)
        ]
        draw_lines(axes, seed_points(row.run, x, by_seed), context.styles, marker_size=marker_size)


def draw_heatmaps(
    figure: Figure, panels: Sequence[Axes], context: SectionContext[Any],
    matrices: "Sequence[NDArray[np.floating]]", top: float, label: str,
) -> None:  # fmt: skip
    """Draw one heatmap per row, of heads by heads, from 0 to ``top``, and one color bar."""
    for axes, row, matrix in zip(panels, context.rows, matrices, strict=True):
        image = axes.imshow(matrix, vmin=0, vmax=top, cmap="viridis")
        label_axes(axes, x="head, layer by layer", y="", title=escape_label(row.label, 34))
        axes.grid(visible=False)
        axes.locator_params(integer=True)
    figure.colorbar(image, ax=list(panels), shrink=0.7, label=label)


def row_legend(
    rows: Iterable[ResolvedRow | ResolvedGridRow], styles: Mapping[str, RowStyle], *,
    line_width: float = 1.6, marker_size: float = 0,
) -> list[Line2D]:  # fmt: skip
    """Return one legend entry per row."""
    return [
        legend_handle(row.label, styles[row.run], line_width=line_width, marker_size=marker_size)
        for row in rows
    ]
