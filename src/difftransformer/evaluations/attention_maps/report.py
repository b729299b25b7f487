"""Tables and figures of attention maps: columns, curves by layer, heat maps of head distances."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.evaluations.attention_maps import model_similarity
from difftransformer.evaluations.attention_maps.settings import (
    BY_LAYER,
    DETAILS,
    MEASURES,
    SURROGATE,
    Options,
)
from difftransformer.models.config import layer_metric
from difftransformer.reporting.charts import Point, draw_lines
from difftransformer.reporting.collect import count_layers, get_metric, require_metric
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import (
    INK,
    Axes,
    Dash,
    Figure,
    RowStyle,
    label_axes,
    legend_below,
    legend_handle,
)
from difftransformer.reporting.number_format import format_count
from difftransformer.reporting.panels import draw_heatmaps, row_legend, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, layer_columns, metric_section

NAMES = {
    "spearman": "Rank correlation",
    "pearson": "Pearson correlation",
    "js": "JS divergence",
    "cosine": "Cosine distance",
}
"""Similarity measure -> column header."""
WEIGHTS = {
    "below_1e4": "Weights below 1e-4",
    "below_1e6": "Weights below 1e-6",
    "entropy": "Entropy",
    "entropy_maps": "Entropy of each map",
    "negative_fraction": "Negative weights",
    "positive_magnitude": "Magnitude of positive weights",
    "negative_magnitude": "Magnitude of negative weights",
}
"""Metric of attention weights -> column header; `_PANELS` has their panels in the figure."""
_PANELS = (
    ("Weights below 1e-4", ("below_1e4",)),
    ("Weights below 1e-6", ("below_1e6",)),
    ("Entropy of |A|, nats", ("entropy",)),
    ("Entropy of each map, nats", ("entropy_first", "entropy_second")),
    ("Fraction of negative weights", ("negative_fraction",)),
    ("Mean magnitude, + and −", ("positive_magnitude", "negative_magnitude")),
)
_DASHES: Sequence[Dash] = ((), (2, 1.5), (0.8, 1.6))
"""Dash of each metric, where a panel has several."""
_MAX_TICKS = 12


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of the topic that the options choose."""
    return _SECTIONS[context.options.topic](context)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the figure of the topic that the options choose."""
    return _FIGURES[context.options.topic](context)


def _map_similarity(context: SectionContext[Options]) -> Section:
    fraction = f"{context.suite.top_fraction:.0%}"
    tokens = {"all": "all", "top": f"top {fraction}"}
    metrics = []
    for measure, name in NAMES.items():
        metrics += [
            MetricColumn(f"{measure}_{end}", f"{name}, {words}") for end, words in tokens.items()
        ]
        change = {f"{measure}_top": 1.0, f"{measure}_all": -1.0}
        surrogate = {name + SURROGATE: factor for name, factor in change.items()}
        excess = change | {name: -factor for name, factor in surrogate.items()}
        metrics += [
            MetricColumn(f"{measure}_change", f"{name}, top − all", change),
            MetricColumn(
                f"{measure}_change{SURROGATE}", f"{name}, top − all, surrogate", surrogate,
                csv_only=True,
            ),
            MetricColumn(f"{measure}_excess", f"{name}, top − all, minus surrogate", excess),
        ]  # fmt: skip
    note = (
        f"Top: the {fraction} of the tokens a query attends to with the largest weights in the "
        f"positive map, from position {context.suite.first_query} on. Surrogate: second maps with "
        "permuted residuals, equally similar at all tokens. "
    )
    return _table(context, metrics, 3, note)


def _weights(context: SectionContext[Options]) -> Section:
    compared = ("below_1e4", "entropy")
    metrics = [
        MetricColumn(id, header, show_difference=id in compared) for id, header in WEIGHTS.items()
    ]
    return _table(context, metrics, 4)


def _head_redundancy(context: SectionContext[Options]) -> Section:
    metrics = [
        MetricColumn("distance", "Distance of heads in a layer ↑", show_difference=True),
        MetricColumn("distance_all", "Distance of all heads"),
    ]
    return _table(context, metrics, 3)


def _table(
    context: SectionContext[Options], metrics: Sequence[MetricColumn], decimals: int, note: str = ""
) -> Section:
    """Return a section of metrics; their values by layer are in the csv."""
    hidden = [
        layer
        for metric in metrics
        if metric.id in BY_LAYER
        for layer in layer_columns(context, metric.id, metric.header)
    ]
    tokens = format_count(require_metric(context.eval_results()[0], "tokens"))
    windows = f"Windows of {context.suite.seq_len} tokens, {tokens} held-out tokens in all"
    windows += (
        ", as each model tokenizes them." if any(row.pretrained for row in context.rows) else "."
    )
    notes = [note + windows, context.training_note()]
    return metric_section(context, [*metrics, *hidden], decimals=decimals, notes=notes)


def _similarity_curves(context: SectionContext[Options]) -> Figure:
    fig, (axs,) = subplot_grid(1, len(MEASURES), (13, 3.4))
    for axes, (measure, name) in zip(axs, NAMES.items(), strict=True):
        _curves(
            axes, context, (f"{measure}_all", f"{measure}_top", f"{measure}_top{SURROGATE}"), name
        )
    top = f"top {context.suite.top_fraction:.0%}"
    _legend(fig, context, "all tokens", top, f"{top}, surrogate maps")
    return fig


def _weight_curves(context: SectionContext[Options]) -> Figure:
    fig, axs = subplot_grid(2, 3, (11, 6))
    for axes, (title, names) in zip(axs.flat, _PANELS, strict=True):
        _curves(axes, context, names, title)
    _legend(fig, context, "first map, positive", "second map, negative")
    return fig


def _heat_maps(context: SectionContext[Options]) -> Figure:
    rows = context.rows
    fig, (axs,) = subplot_grid(1, 1 + len(rows), (3.4 * (1 + len(rows)), 3.8))
    _curves(axs[0], context, ("distance",), "Distance of heads in a layer")
    legend_below(fig, row_legend(context.rows, context.styles, marker_size=4))
    matrices = [context.mean_detail(row, DETAILS, "distance") for row in rows]
    top = max(float(np.nanmax(matrix, initial=0.0)) for matrix in matrices)
    draw_heatmaps(fig, axs[1:], context, matrices, top or 1.0, "cosine distance")
    return fig


def _curves(axes: Axes, context: SectionContext[Options], names: Sequence[str], title: str) -> None:
    """Draw metrics by layer, one dash per metric, at the layers where all seeds have a value."""
    points, styles = [], {}
    for row, (index, name) in product(context.rows, enumerate(names)):
        line, style = f"{row.run}/{index}", context.styles[row.run]
        styles[line] = style._replace(dash=_DASHES[index]) if len(names) > 1 else style
        for layer in range(_layers(context, [row])):
            results = context.eval_results(row)
            values = [get_metric(result, layer_metric(name, layer)) for result in results]
            if None not in values:
                points += [Point(line, layer, value) for value in values if value is not None]
    draw_lines(axes, points, styles, marker_size=4)
    depth = _layers(context, context.rows)
    step = 1 + (depth - 1) // _MAX_TICKS
    axes.set_xticks(range(0, depth, step), [str(layer + 1) for layer in range(0, depth, step)])
    axes.set_xlim(-0.5, depth - 0.5)
    axes.grid(visible=False, axis="x")
    label_axes(axes, x="layer", y="", title=title)


def _legend(fig: Figure, context: SectionContext[Options], *labels: str) -> None:
    styles = zip(_DASHES, labels, strict=False)
    signs = [
        legend_handle(label, RowStyle(INK, dash, ""), line_width=1.4, marker_size=0)
        for dash, label in styles
    ]
    legend_below(fig, [*signs, *row_legend(context.rows, context.styles, marker_size=4)])


def _layers(context: SectionContext[Options], rows: Sequence[ResolvedRow]) -> int:
    """Return the number of layers of the deepest of these rows."""
    return count_layers(BY_LAYER[-1], context.eval_results(*rows))


_SECTIONS: Mapping[str, Callable[[SectionContext[Options]], Section]] = {
    "map_similarity": _map_similarity,
    "weights": _weights,
    "head_redundancy": _head_redundancy,
    "model_similarity": model_similarity.section,
}
_FIGURES: "Mapping[str, Callable[[SectionContext[Options]], Figure]]" = {
    "map_similarity": _similarity_curves,
    "weights": _weight_curves,
    "head_redundancy": _heat_maps,
    "model_similarity": model_similarity.figure,
}
