"""How alike heads are as heat maps, how evenly they matter as curves, what Dex makes of each."""

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
    MetricColumn(CKA, "CKA in a layer ↓", compared=True),
    MetricColumn("cka_all", "CKA of all heads ↓"),
    MetricColumn(IMPORTANCE, "Evenness of importance ↑", compared=True),
    MetricColumn("dex_cosine", "cos(O, λOW)"),
    MetricColumn("dex_norm", "|λOW| / |O|"),
)


def section(context: SectionContext[Options]) -> Section:
    """Make the section."""
    suite = context.suite
    notes = [
        f"Windows of {suite.seq_len} tokens. CKA: linear, unbiased, over {suite.samples} positions "
        "of each batch, mean over pairs of heads; 1 where two heads say the same. Evenness: a "
        "layer's importances divided by its largest, their mean; 1 where all heads matter as much. "
        "The last two columns are of the heads that Dex changed.",
        context.training_note(),
    ]
    return metric_section(context, COLUMNS, decimals=3, notes=notes)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw a heat map for each row, curves for each layer, or the joint plot of changes."""
    return {"alignment": _heat_maps, "importance": _curves, "change": _joint}[
        context.options.shown
    ](context)


def _heat_maps(context: SectionContext[Options]) -> Figure:
    rows = context.rows
    drawn, (places,) = subplot_grid(1, len(rows), (3.4 * len(rows), 3.6))
    matrices = [context.mean_detail(row, DETAILS, "cka") for row in rows]
    draw_heatmaps(drawn, places, context, matrices, 1, "CKA")
    return drawn


def _curves(context: SectionContext[Options]) -> Figure:
    importances = {row.run: context.mean_detail(row, DETAILS, "importance") for row in context.rows}
    layers = max(len(one) for one in importances.values())
    drawn, (places,) = subplot_grid(1, layers, (3.8 * layers, 3.6), sharey=True)
    for layer, axes in enumerate(places):
        for run, importance in importances.items():
            if layer < len(importance):
                values = np.sort(importance[layer])[::-1].tolist()
                ranks = [(place + 0.5) / len(values) for place in range(len(values))]
                draw_lines(axes, seed_points(run, ranks, [values]), context.styles, marks=6)
        title, y = f"Layer {layer + 1}", "importance" if layer == 0 else ""
        label_axes(axes, x="share of heads", y=y, title=title)
    legend_below(drawn, row_legend(context.rows, context.styles, mark=6))
    return drawn


def _joint(context: SectionContext[Options]) -> Figure:
    """Cosine and size of the change of every head that was changed, of all seeds."""
    import pandas as pd
    import seaborn

    cosine, size, layer = "cosine of O and λOW", "|λOW| / |O|", "layer"
    found = [
        load_file(context.detail(row.run, seed, DETAILS))
        for row in context.rows
        for seed in context.seeds_of(row)
    ]
    points = [
        {cosine: float(one["cosine"][place]), size: float(one["norm"][place]), layer: place[0] + 1}
        for one in found
        if "cosine" in one
        for place in np.ndindex(one["cosine"].shape)
        if np.isfinite(one["cosine"][place])
    ]
    if not points:
        raise UserError(f"section '{context.title}': Dex changed no head of its rows")
    grid = seaborn.jointplot(
        pd.DataFrame(points), x=cosine, y=size, hue=layer, palette="viridis", height=5, s=28,
        marginal_kws={"cut": 0, "warn_singular": False},
    )  # fmt: skip
    grid.ax_joint.axvline(0, color=FAINT, lw=1.2, zorder=0)
    drawn: Figure = grid.figure
    drawn.tight_layout()
    return drawn
