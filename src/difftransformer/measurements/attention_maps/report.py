"""Attention maps as columns, as curves by layer, and as heat maps of the distances of heads."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.measurements.attention_maps import between
from difftransformer.measurements.attention_maps.settings import (
    ALIKE,
    BY_LAYER,
    DETAILS,
    KINDS,
    Options,
)
from difftransformer.models.config import layer_metric
from difftransformer.reporting.collect import defined, layers_with, metric
from difftransformer.reporting.curves import draw, over_seeds
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import INK, legend_below, printable, tidy
from difftransformer.reporting.numbers import count
from difftransformer.reporting.panels import heat_maps, name_places, panels
from difftransformer.reporting.sections import Metric, by_layer, metric_section
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

NAMES = {
    "rank": "Rank correlation",
    "pearson": "Pearson correlation",
    "js": "JS divergence",
    "cosine": "Cosine distance",
}
"""Kinds of agreement."""
SCORES = {
    "below_1e4": "Below 1e-4",
    "below_1e6": "Below 1e-6",
    "entropy": "Entropy",
    "entropy_maps": "Entropy of each map",
    "negative_share": "Negative",
    "positive_size": "Size of positive",
    "negative_size": "Size of negative",
}
"""Metrics of weights; their places in the figure are `_PANELS`."""
_PANELS = (
    ("Weights below 1e-4", ("below_1e4",)),
    ("Weights below 1e-6", ("below_1e6",)),
    ("Entropy of |A|, nats", ("entropy",)),
    ("Entropy of each map, nats", ("entropy_first", "entropy_second")),
    ("Share of negative weights", ("negative_share",)),
    ("Mean size, + and −", ("positive_size", "negative_size")),
)
_DASHES: Sequence[str | tuple[int, tuple[float, ...]]] = ("-", (0, (2, 1.5)), (0, (0.8, 1.6)))
"""Of the lines of a row in one panel, where there are some."""
_TICKS = 12
"""Layers that are named at most."""


def section(view: View[Options]) -> Section:
    """Make the section of what is shown; numbers by layer are in the csv."""
    return _SECTIONS[view.options.shown](view)


def figure(view: View[Options]) -> "Figure":
    """Draw what is shown."""
    return _FIGURES[view.options.shown](view)


def _agreement(view: View[Options]) -> Section:
    parts = {"all": "all", "top": f"top {view.suite.top_share:.0%}"}
    metrics = []
    for kind in KINDS:
        name = NAMES[kind]
        metrics += [Metric(f"{kind}_{end}", f"{name}, {part}") for end, part in parts.items()]
        change = {f"{kind}_top": 1.0, f"{kind}_all": -1.0}
        alike = {name + ALIKE: factor for name, factor in change.items()}
        beyond = change | {name: -factor for name, factor in alike.items()}
        metrics += [
            Metric(f"{kind}_change", f"{name}, top − all", change),
            Metric(f"{kind}_change{ALIKE}", f"{name}, top − all, alike", alike, hidden=True),
            Metric(f"{kind}_beyond", f"{name}, beyond alike", beyond),
        ]
    note = (
        "Agreement of the two maps of a head in a row, mean over rows, heads and layers: over all "
        f"tokens that a query sees, and over the {view.suite.top_share:.0%} most salient of them, "
        f"by the map that is kept, from position {view.suite.first_query} on. Whatever "
        "the maps, the few tokens of largest weight agree less than all; beyond alike: by how much "
        "top − all lies beyond that of second maps whose likeness to the first is the same for "
        "all tokens: logarithms of weights about one line a row, with residuals permuted (ours). "
    )
    return _table(view, metrics, 3, note)


def _scores(view: View[Options]) -> Section:
    compared = ("below_1e4", "entropy")
    metrics = [Metric(id, header, compared=id in compared) for id, header in SCORES.items()]
    note = (
        "Weights of pairs of a query and a token that it sees: share of those of a smaller size "
        "than a threshold, entropy in nats of a row's absolute weights over their sum and of the "
        "rows of the two maps, share of negative weights, mean sizes. What is below a fixed "
        "threshold depends on the length of the windows. "
    )
    return _table(view, metrics, 4, note)


def _redundancy(view: View[Options]) -> Section:
    metrics = [
        Metric("distance", "Distance in a layer ↑", compared=True),
        Metric("distance_all", "Distance of all heads"),
    ]
    note = (
        "Cosine distance of the signed maps of two heads, each map one vector, mean over pairs of "
        "heads and windows; 0 where they are the same up to a factor. "
    )
    return _table(view, metrics, 3, note)


def _table(view: View[Options], metrics: Sequence[Metric], decimals: int, note: str) -> Section:
    """Make a section of metrics, with every layer's own in the csv."""
    named = {one.id: one.header for one in metrics if one.id in BY_LAYER}
    hidden = [one for name, header in named.items() for one in by_layer(view, name, header)]
    tokens = count(defined(view.evaluated()[0], "tokens"))
    measured = f"Windows of {view.suite.seq_len} tokens, {tokens} held-out tokens in all"
    measured += ", each model's own." if any(row.pretrained for row in view.rows) else "."
    notes = [note + measured, view.training_note()]
    return metric_section(view, [*metrics, *hidden], decimals=decimals, notes=notes)


def _agreement_curves(view: View[Options]) -> "Figure":
    drawn, (places,) = panels(1, len(KINDS), (13, 3.4))
    for axes, kind in zip(places, KINDS, strict=True):
        _curves(axes, view, (f"{kind}_all", f"{kind}_top", f"{kind}_top{ALIKE}"), NAMES[kind])
    top = f"top {view.suite.top_share:.0%}"
    handles = _line_styles("all tokens", top, f"{top}, maps alike everywhere")
    legend_below(drawn, places[0], handles=handles)
    return drawn


def _score_curves(view: View[Options]) -> "Figure":
    drawn, places = panels(2, 3, (11, 6))
    for axes, (title, names) in zip(places.flat, _PANELS, strict=True):
        _curves(axes, view, names, title)
    handles = _line_styles("first map, positive", "second map, negative")
    legend_below(drawn, places.flat[0], handles=handles)
    return drawn


def _heat_maps(view: View[Options]) -> "Figure":
    rows = view.rows
    drawn, (places,) = panels(1, 1 + len(rows), (3.4 * (1 + len(rows)), 3.8))
    _curves(places[0], view, ("distance",), "Distance in a layer")
    legend_below(drawn, places[0])
    matrices = [view.mean_detail(row, DETAILS, "distance") for row in rows]
    top = max(float(np.nanmax(one, initial=0.0)) for one in matrices)
    heat_maps(drawn, places[1:], view, matrices, top or 1.0, "cosine distance")
    return drawn


def _curves(axes: "Axes", view: View[Options], names: Sequence[str], title: str) -> None:
    """Draw metrics by layer, where every seed of a row has them, each with a dash of its own."""
    for row in view.rows:
        for place, name in enumerate(names):
            by_layer = {
                layer: [metric(one, layer_metric(name, layer)) for one in view.evaluated(row)]
                for layer in range(_layers(view, [row]))
            }
            layers = [layer for layer, found in by_layer.items() if None not in found]
            if not layers:
                continue
            known = [
                [value for value in seed if value is not None]
                for seed in zip(*(by_layer[layer] for layer in layers), strict=True)
            ]
            look = view.look[row.run]
            if len(names) > 1:
                look = look._replace(dash=_DASHES[place])
            label = printable(row.label) if not place else ""
            draw(axes, over_seeds(layers, known), look, label or "_", marks=4)
    depth = _layers(view, view.rows)
    every = 1 + (depth - 1) // _TICKS
    names_of = [str(layer + 1) if layer % every == 0 else "" for layer in range(depth)]
    name_places(axes, names_of)
    tidy(axes, x="layer", y="", title=title)


def _line_styles(*labels: str) -> "list[Line2D]":
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=INK, lw=1.4, ls=dash, label=label)
        for dash, label in zip(_DASHES, labels, strict=False)
    ]


def _layers(view: View[Options], rows: Sequence[RowSlice]) -> int:
    """Layers of the deepest of some rows."""
    return layers_with(BY_LAYER[-1], view.evaluated(*rows))


_SECTIONS: Mapping[str, Callable[[View[Options]], Section]] = {
    "agreement": _agreement,
    "scores": _scores,
    "redundancy": _redundancy,
    "between": between.section,
}
_FIGURES: "Mapping[str, Callable[[View[Options]], Figure]]" = {
    "agreement": _agreement_curves,
    "scores": _score_curves,
    "redundancy": _heat_maps,
    "between": between.figure,
}
