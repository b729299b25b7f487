"""Table of head outputs; heat maps of CKA, curves of importance, or a plot of Dex's change."""

import numpy as np
from safetensors.numpy import load_file

from difftransformer.errors import UserError
from difftransformer.evaluations.head_features.settings import CKA, DETAILS, IMPORTANCE, Options
from difftransformer.reporting.charts import draw_lines, seed_points
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import FAINT, Figure, label_axes, legend_below
from difftransformer.reporting.panels import draw_heatmaps, row_legend, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, metric_section

COLUMNS = (
    MetricColumn(CKA, "CKA within a layer ↓", show_difference=True),
    MetricColumn("cka_all", "CKA of all heads ↓"),
    MetricColumn(IMPORTANCE, "Evenness of importance ↑", show_difference=True),
    MetricColumn("dex_cosine", "cos(O, λOW)"),
    MetricColumn("dex_norm", "|λOW| / |O|"),
)


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of CKA, evenness of head importance, and Dex's change of heads."""
    suite = context.suite
    notes = [
        f"Windows of {suite.seq_len} tokens. CKA: linear, unbiased, over {suite.samples} positions "
        "of each batch, mean over pairs of heads; 1 for equal outputs up to rotation and scale. "
        "Evenness: mean importance of a layer's heads relative to its most important head; 1 if "
        "all are equally important. The last two columns: means over the heads that Dex changed.",
        context.training_note(),
    ]
    return metric_section(context, COLUMNS, decimals=3, notes=notes)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the plot that the options choose: CKA, head importance, or Dex's change of heads."""
    plots = {"cka": _heat_maps, "importance": _curves, "dex_change": _joint_plot}
    return plots[context.options.plot](context)


def _heat_maps(context: SectionContext[Options]) -> Figure:
    rows = context.rows
    fig, (axs,) = subplot_grid(1, len(rows), (3.4 * len(rows), 3.6))
    matrices = [context.mean_detail(row, DETAILS, "cka") for row in rows]
    draw_heatmaps(fig, axs, context, matrices, 1, "CKA")
    return fig


def _curves(context: SectionContext[Options]) -> Figure:
    importances = {row.run: context.mean_detail(row, DETAILS, "importance") for row in context.rows}
    layers = max(map(len, importances.values()))
    fig, (axs,) = subplot_grid(1, layers, (3.8 * layers, 3.6), sharey=True)
    for layer, axes in enumerate(axs):
        for run, importance in importances.items():
            if layer < len(importance):
                values = np.sort(importance[layer])[::-1].tolist()
                ranks = [(rank + 0.5) / len(values) for rank in range(len(values))]
                draw_lines(axes, seed_points(run, ranks, [values]), context.styles, marker_size=6)
        title, y = f"Layer {layer + 1}", "importance" if layer == 0 else ""
        label_axes(axes, x="fraction of heads", y=y, title=title)
    legend_below(fig, row_legend(context.rows, context.styles, marker_size=6))
    return fig


def _joint_plot(context: SectionContext[Options]) -> Figure:
    """Draw cosine and norm of the change of every changed head of all seeds."""
    import pandas as pd
    import seaborn

    cosine, norm, layer = "cosine of O and λOW", "|λOW| / |O|", "layer"
    files = [
        load_file(context.detail(row.run, seed, DETAILS))
        for row in context.rows
        for seed in context.seeds_of(row)
    ]
    points = [
        {cosine: float(file["cosine"][head]), norm: float(file["norm"][head]), layer: head[0] + 1}
        for file in files
        if "cosine" in file
        for head in np.ndindex(file["cosine"].shape)
        if np.isfinite(file["cosine"][head])
    ]
    if not points:
        raise UserError(
            f"section '{context.title}': Dex changed no head of its runs, leave the figure out"
        )
    grid = seaborn.jointplot(
        pd.DataFrame(points), x=cosine, y=norm, hue=layer, palette="viridis", height=5, s=28,
        marginal_kws={"cut": 0, "warn_singular": False},
    )  # fmt: skip
    grid.ax_joint.axvline(0, color=FAINT, lw=1.2, zorder=0)
    fig: Figure = grid.figure
    fig.tight_layout()
    return fig
