"""Figure of accuracy by context length: heat maps over depth and length, ours and published."""

from collections.abc import Sequence
from typing import NamedTuple

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.errors import UserError
from difftransformer.evaluations.needles.settings import Options, accuracy_metric
from difftransformer.reporting.charts import draw_lines, seed_points
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.drawing import (
    Axes,
    Figure,
    RowStyle,
    SubFigure,
    escape_label,
    label_axes,
    legend_handle,
)
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.table_notes import proxy_title


class Panel(NamedTuple):
    """Accuracies of one model: means by depth and length [D, L], and by seed and length [S, L]."""

    run: str
    label: str
    grid: list[list[float]]
    averages: list[list[float]]


def figure(context: SectionContext[Options]) -> Figure:
    """Draw heat maps of accuracy by depth and length, one per model; published ones below."""
    import matplotlib.pyplot as plt

    lengths, depths = require_lengths(context), context.suite.depths
    ours = [_ours(context, row) for row in context.rows]
    published, their_lengths = _published(context)
    rows = 2 if published else 1
    figure = plt.figure(figsize=(12.5, 3.0 * rows), layout="constrained")
    top, *below = figure.subfigures(rows, 1, squeeze=False, hspace=0.03).ravel()
    _draw_panels(top, ours, lengths, depths, context.styles, "")
    for part in below:
        _draw_panels(part, published, their_lengths, depths, context.styles, ", published")
    if context.suite.proxy is not None:
        top.suptitle(proxy_title("Ours", context.suite.proxy), x=0.0, ha="left", fontsize=10)
    return figure


def require_lengths(context: SectionContext[Options]) -> list[int]:
    """Return the suite's context lengths, at least two.

    Raises:
        UserError: The suite has fewer than two lengths.
    """
    lengths: list[int] | None = context.suite.lengths
    if lengths is None or len(lengths) < 2:
        raise UserError(
            f"suite '{context.section.suites[0]}' has the lengths {lengths}: accuracy by "
            "length needs two or more"
        )
    return lengths


def _ours(context: SectionContext[Options], row: ResolvedRow) -> Panel:
    results, suite = context.eval_results(row), context.suite
    pair, lengths = suite.pairs[0], suite.lengths

    def mean(length: int, depth: int) -> float:
        name = accuracy_metric(pair, length, depth)
        return sum(require_metric(result, name) for result in results) / len(results)

    grid = [[mean(length, depth) for length in lengths] for depth in suite.depths]
    averages = [
        [require_metric(result, accuracy_metric(pair, length)) for length in lengths]
        for result in results
    ]
    return Panel(row.run, row.label, grid, averages)


def _published(context: SectionContext[Options]) -> tuple[list[Panel], list[int]]:
    """Return published panels of the rows and their lengths; none without our depths."""
    table, depths = context.artifact.paper, context.suite.depths
    runs = [row.run for row in context.rows]
    rows = {} if table is None else {run: table.rows[run] for run in runs if run in table.rows}
    values_by_run = {
        run: {name: float(value) for name, value in row.values.items() if value is not None}
        for run, row in rows.items()
    }
    names = {name for values in values_by_run.values() for name in values}
    lengths = sorted(int(name[1:]) for name in names if name[0] == "l" and name[1:].isdigit())
    columns = {f"l{length}_d{depth}" for length in lengths for depth in depths}
    if not lengths or not all(values.keys() >= columns for values in values_by_run.values()):
        return [], lengths
    panels = []
    for run, values in values_by_run.items():
        grid = [[values[f"l{length}_d{depth}"] for length in lengths] for depth in depths]
        means = [values[f"l{length}"] for length in lengths]
        panels.append(Panel(run, rows[run].label, grid, [means]))
    return panels, lengths


def _draw_panels(
    figure: SubFigure, panels: Sequence[Panel], lengths: Sequence[int], depths: Sequence[int],
    styles: dict[str, RowStyle], source: str,
) -> None:  # fmt: skip
    """Draw a heat map per model, and beside them the means by length of all models."""
    widths = [1.0] * len(panels) + [1.15]
    row_axes = figure.subplots(1, len(panels) + 1, gridspec_kw={"width_ratios": widths})
    names = [f"{n // 1024}K" if n % 1024 == 0 else str(n) for n in lengths]
    for index, (axes, panel) in enumerate(zip(row_axes, panels, strict=False)):
        _heatmap(axes, panel.grid, names, [f"{depth}" for depth in depths] if index == 0 else [])
        label_axes(axes, x="context length, tokens", y="depth, %" if index == 0 else "")
        axes.set_title(escape_label(panel.label + source, 30), fontsize=9, pad=6)
    _averages(row_axes[-1], panels, names, styles)


def _heatmap(axes: Axes, grid: list[list[float]], lengths: list[str], depths: list[str]) -> None:
    import seaborn

    dense = len(lengths) > 5
    seaborn.heatmap(
        grid, ax=axes, vmin=0, vmax=1, cmap=seaborn.color_palette("mako", as_cmap=True),
        annot=True, fmt=".2f", annot_kws={"size": 6.5 if dense else 8}, cbar=False,
        linewidths=0.8, xticklabels=lengths, yticklabels=depths or False,
    )  # fmt: skip
    axes.tick_params(length=0, labelsize=7.5, labelrotation=0)


def _averages(
    axes: Axes, panels: Sequence[Panel], lengths: list[str], styles: dict[str, RowStyle]
) -> None:
    for panel in panels:
        draw_lines(
            axes,
            seed_points(panel.run, range(len(lengths)), panel.averages),
            styles,
            marker_size=4.5,
        )
    axes.set_xticks(range(len(lengths)), lengths)
    axes.tick_params(labelsize=7.5)
    axes.set_ylim(0, 1.05)
    label_axes(axes, x="context length, tokens", y="accuracy")
    axes.set_title("Mean over depths", fontsize=9, pad=6)
    handles = [
        legend_handle(panel.label, styles[panel.run], line_width=1.6, marker_size=4.5)
        for panel in panels
    ]
    axes.legend(handles=handles, fontsize=7, loc="best", handlelength=2.4)
