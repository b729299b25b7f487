"""How alike heads are as heat maps, how evenly they matter as curves, what Dex makes of each."""

import numpy as np
from safetensors.numpy import load_file

from difftransformer.errors import UserError
from difftransformer.evaluations.head_features.settings import CKA, DETAILS, IMPORTANCE, Options
from difftransformer.reporting.charts import lines, over_seeds
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import FAINT, Figure, legend_below, tidy
from difftransformer.reporting.panels import heat_maps, panels, row_signs
from difftransformer.reporting.sections import Metric, metric_section
from difftransformer.reporting.view import View

COLUMNS = (
    Metric(CKA, "CKA in a layer ↓", compared=True),
    Metric("cka_all", "CKA of all heads ↓"),
    Metric(IMPORTANCE, "Evenness of importance ↑", compared=True),
    Metric("dex_cosine", "cos(O, λOW)"),
    Metric("dex_norm", "|λOW| / |O|"),
)


def section(view: View[Options]) -> Section:
    """Make the section."""
    suite = view.suite
    notes = [
        f"Windows of {suite.seq_len} tokens. CKA: linear, unbiased, over {suite.samples} positions "
        "of each batch, mean over pairs of heads; 1 where two heads say the same. Evenness: a "
        "layer's importances divided by its largest, their mean; 1 where all heads matter as much. "
        "The last two columns are of the heads that Dex changed.",
        view.training_note(),
    ]
    return metric_section(view, COLUMNS, decimals=3, notes=notes)


def figure(view: View[Options]) -> Figure:
    """Draw a heat map for each row, curves for each layer, or the joint plot of changes."""
    return {"alignment": _heat_maps, "importance": _curves, "change": _joint}[view.options.shown](
        view
    )


def _heat_maps(view: View[Options]) -> Figure:
    rows = view.rows
    drawn, (places,) = panels(1, len(rows), (3.4 * len(rows), 3.6))
    matrices = [view.mean_detail(row, DETAILS, "cka") for row in rows]
    heat_maps(drawn, places, view, matrices, 1, "CKA")
    return drawn


def _curves(view: View[Options]) -> Figure:
    importances = {row.run: view.mean_detail(row, DETAILS, "importance") for row in view.rows}
    layers = max(len(one) for one in importances.values())
    drawn, (places,) = panels(1, layers, (3.8 * layers, 3.6), sharey=True)
    for layer, axes in enumerate(places):
        for run, importance in importances.items():
            if layer < len(importance):
                values = np.sort(importance[layer])[::-1].tolist()
                ranks = [(place + 0.5) / len(values) for place in range(len(values))]
                lines(axes, over_seeds(run, ranks, [values]), view.look, marks=6)
        title, y = f"Layer {layer + 1}", "importance" if layer == 0 else ""
        tidy(axes, x="share of heads", y=y, title=title)
    legend_below(drawn, row_signs(view.rows, view.look, mark=6))
    return drawn


def _joint(view: View[Options]) -> Figure:
    """Cosine and size of the change of every head that was changed, of all seeds."""
    import pandas as pd
    import seaborn

    cosine, size, layer = "cosine of O and λOW", "|λOW| / |O|", "layer"
    found = [
        load_file(view.detail(row.run, seed, DETAILS))
        for row in view.rows
        for seed in view.seeds_of(row)
    ]
    points = [
        {cosine: float(one["cosine"][place]), size: float(one["norm"][place]), layer: place[0] + 1}
        for one in found
        if "cosine" in one
        for place in np.ndindex(one["cosine"].shape)
        if np.isfinite(one["cosine"][place])
    ]
    if not points:
        raise UserError(f"section '{view.title}': Dex changed no head of its rows")
    grid = seaborn.jointplot(
        pd.DataFrame(points), x=cosine, y=size, hue=layer, palette="viridis", height=5, s=28,
        marginal_kws={"cut": 0, "warn_singular": False},
    )  # fmt: skip
    grid.ax_joint.axvline(0, color=FAINT, lw=1.2, zorder=0)
    drawn: Figure = grid.figure
    drawn.tight_layout()
    return drawn
