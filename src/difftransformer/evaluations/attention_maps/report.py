"""Attention maps as columns, as curves by layer, and as heat maps of the distances of heads."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.evaluations.attention_maps import between
from difftransformer.evaluations.attention_maps.settings import (
    ALIKE,
    BY_LAYER,
    DETAILS,
    KINDS,
    Options,
)
from difftransformer.models.config import layer_metric
from difftransformer.reporting.charts import Point, lines
from difftransformer.reporting.collect import defined, layers_with, metric
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import (
    INK,
    Axes,
    Dash,
    Figure,
    Look,
    legend_below,
    sign,
    tidy,
)
from difftransformer.reporting.numbers import count
from difftransformer.reporting.panels import heat_maps, panels, row_signs
from difftransformer.reporting.sections import Metric, by_layer, metric_section
from difftransformer.reporting.view import View

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
_DASHES: Sequence[Dash] = ((), (2, 1.5), (0.8, 1.6))
"""Of the lines of a row in one panel, where there are some."""
_TICKS = 12
"""Layers that are named at most."""


def section(view: View[Options]) -> Section:
    """Make the section of what is shown; numbers by layer are in the csv."""
    return _SECTIONS[view.options.shown](view)


def figure(view: View[Options]) -> Figure:
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
        f"Salient: the {view.suite.top_share:.0%} of the tokens that a query sees, "
        f"by the map that is kept, from position {view.suite.first_query} on. "
    )
    return _table(view, metrics, 3, note)


def _scores(view: View[Options]) -> Section:
    compared = ("below_1e4", "entropy")
    metrics = [Metric(id, header, compared=id in compared) for id, header in SCORES.items()]
    return _table(view, metrics, 4)


def _redundancy(view: View[Options]) -> Section:
    metrics = [
        Metric("distance", "Distance in a layer ↑", compared=True),
        Metric("distance_all", "Distance of all heads"),
    ]
    return _table(view, metrics, 3)


def _table(
    view: View[Options], metrics: Sequence[Metric], decimals: int, note: str = ""
) -> Section:
    """Make a section of metrics, with every layer's own in the csv."""
    named = {one.id: one.header for one in metrics if one.id in BY_LAYER}
    hidden = [one for name, header in named.items() for one in by_layer(view, name, header)]
    tokens = count(defined(view.evaluated()[0], "tokens"))
    measured = f"Windows of {view.suite.seq_len} tokens, {tokens} held-out tokens in all"
    measured += ", each model's own." if any(row.pretrained for row in view.rows) else "."
    notes = [note + measured, view.training_note()]
    return metric_section(view, [*metrics, *hidden], decimals=decimals, notes=notes)


def _agreement_curves(view: View[Options]) -> Figure:
    drawn, (places,) = panels(1, len(KINDS), (13, 3.4))
    for axes, kind in zip(places, KINDS, strict=True):
        _curves(axes, view, (f"{kind}_all", f"{kind}_top", f"{kind}_top{ALIKE}"), NAMES[kind])
    top = f"top {view.suite.top_share:.0%}"
    _legend(drawn, view, "all tokens", top, f"{top}, maps alike everywhere")
    return drawn


def _score_curves(view: View[Options]) -> Figure:
    drawn, places = panels(2, 3, (11, 6))
    for axes, (title, names) in zip(places.flat, _PANELS, strict=True):
        _curves(axes, view, names, title)
    _legend(drawn, view, "first map, positive", "second map, negative")
    return drawn


def _heat_maps(view: View[Options]) -> Figure:
    rows = view.rows
    drawn, (places,) = panels(1, 1 + len(rows), (3.4 * (1 + len(rows)), 3.8))
    _curves(places[0], view, ("distance",), "Distance in a layer")
    legend_below(drawn, row_signs(view.rows, view.look, mark=4))
    matrices = [view.mean_detail(row, DETAILS, "distance") for row in rows]
    top = max(float(np.nanmax(one, initial=0.0)) for one in matrices)
    heat_maps(drawn, places[1:], view, matrices, top or 1.0, "cosine distance")
    return drawn


def _curves(axes: Axes, view: View[Options], names: Sequence[str], title: str) -> None:
    """Draw metrics by layer, where every seed of a row has them, each with a dash of its own."""
    points, look = [], {}
    for row, (place, name) in product(view.rows, enumerate(names)):
        line, found = f"{row.run}/{place}", view.evaluated(row)
        own = view.look[row.run]
        look[line] = own._replace(dash=_DASHES[place]) if len(names) > 1 else own
        for layer in range(_layers(view, [row])):
            values = [metric(one, layer_metric(name, layer)) for one in found]
            if None not in values:
                points += [Point(line, layer, value) for value in values if value is not None]
    lines(axes, points, look, marks=4)
    depth = _layers(view, view.rows)
    every = 1 + (depth - 1) // _TICKS
    axes.set_xticks(range(0, depth, every), [str(layer + 1) for layer in range(0, depth, every)])
    axes.set_xlim(-0.5, depth - 0.5)
    axes.grid(visible=False, axis="x")
    tidy(axes, x="layer", y="", title=title)


def _legend(figure: Figure, view: View[Options], *kinds: str) -> None:
    styles = zip(_DASHES, kinds, strict=False)
    signs = [sign(label, Look(INK, dash, ""), line=1.4, mark=0) for dash, label in styles]
    legend_below(figure, [*signs, *row_signs(view.rows, view.look, mark=4)])


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
