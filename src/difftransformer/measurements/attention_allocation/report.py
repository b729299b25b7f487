"""Attention allocation: shares of the answer and of noise by depth, all shares, and one prompt."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.config.measurement import Options
from difftransformer.measurements.attention_allocation.settings import share_name
from difftransformer.reporting.collect import defined
from difftransformer.reporting.conditions import stand_in_title
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import FAINT, INK, SOFT, legend_below, printable, tidy
from difftransformer.reporting.panels import halves, metric_curves
from difftransformer.reporting.sections import Metric, metric_section
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

REGION_NAMES = {
    "bos": "First token",
    "before": "Context before",
    "answer": "Answer",
    "after": "Context after",
    "query": "Question",
}
"""Regions of a prompt, whose shares make up a row of attention."""
_SHOWN = {"answer": "Answer {} ↑", "noise": "Noise {} ↓"}
_NORMALISATIONS = {False: "absolute", True: "signed"}
_ASKED = {
    "recall": ", a stand-in for the paper's: keys with values of the builtin recall corpus in its "
    "own haystack",
    "text": ": English sentences in held-out text",
}
_ANSWER = {"needle": "the whole answer needle", "value": "the value of the answer needle"}
_MOST_LAYERS = 8
"""So many ticks on an axis of layers."""
_MOST_TOKENS = 48
"""More than so many tokens have no words below them."""
_MOST_COLUMNS = 160
"""Longer prompts are drawn in this many columns, each with its largest weight."""


class Example(NamedTuple):
    """One prompt: weights [heads of all layers, S] divided by the row's sum of absolute values."""

    weights: NDArray[np.floating]
    layers: int
    tokens: list[str]
    regions: list[str]


def section(view: View[Options]) -> Section:
    """Make the section: shares by depth, and over all depths under both normalisations.

    Signed shares by depth, shares by layer and the other regions are in the csv.
    """
    suite, shown, both = view.suite, _SHOWN.items(), _NORMALISATIONS.items()
    metrics = [
        Metric(share_name(region, depth, signed=signed), header.format(f"{depth}%"), hidden=signed)
        for signed in _NORMALISATIONS
        for region, header in shown
        for depth in suite.depths
    ]
    metrics += [
        Metric(share_name(region, signed=signed), header.format(f"all, {name}"))
        for region, header in shown
        for signed, name in both
    ]
    metrics += [
        Metric(
            share_name(region, layer=layer, signed=signed),
            f"{region}, {name}, layer {layer + 1}",
            hidden=True,
        )
        for region in _SHOWN
        for signed, name in both
        for layer in range(_layers(view))
    ]
    metrics += [
        Metric(share_name(region, signed=signed), f"{header}, {name}", hidden=True)
        for region, header in REGION_NAMES.items()
        if region not in _SHOWN
        for signed, name in both
    ]
    notes = [
        f"{suite.samples} prompts at each depth, {suite.needles} needles of which one is asked "
        f"for{_ASKED[suite.format]}. Answer: {_ANSWER[suite.answer]}. Noise: the context without "
        "it and without the first token.",
        "Shares are of absolute weights, divided by their sum. Signed: a row is divided by its own "
        "sum, so shares keep their sign, and are large where maps cancel; for softmax both are the "
        "same. By depth, and by layer, the csv has both.",
        view.training_note(),
    ]
    return metric_section(view.standing_in(suite.stand_in), metrics, decimals=2, notes=notes)


def figure(view: View[Options]) -> "Figure":
    """Draw shares by region and layer above, the prompt of the first seed in every row below."""
    examples = [_example(view, row) for row in view.rows]
    heights = (3.6, 1.75 * len(examples))
    figure, top, bottom = halves((11, sum(heights)), heights, 0.03)
    shares, *by_layer = top.subplots(1, 3, width_ratios=(2.6, 1, 1))
    _shares(shares, view)
    _layer_by_layer(by_layer, view)
    legend_below(top, shares)
    _pictures(bottom, view, examples)
    return figure


def _shares(axes: "Axes", view: View[Options]) -> None:
    paper, look = view.paper, view.look
    bars: list[tuple[str, str, list[list[float]], bool]] = []
    names = [share_name(region) for region in REGION_NAMES]
    for row in view.rows:
        found = view.evaluated(row)
        measured = [[defined(result, name) for result in found] for name in names]
        bars.append((row.run, row.label, measured, False))
        printed = [paper.number(row.run, name) for name in names]
        known = [[value] for value in printed if value is not None]
        if len(known) == len(printed):
            bars.append((row.run, f"{row.label}, published", known, True))
    breadth = 0.82 / len(bars)
    for index, (run, label, values, published) in enumerate(bars):
        places = [place + breadth * (index + 0.5) - 0.41 for place in range(len(REGION_NAMES))]
        means = [sum(seeds) / len(seeds) for seeds in values]
        colour = look[run].colour
        axes.bar(
            places, means, 0.9 * breadth, label=printable(label), linewidth=1.0, edgecolor=colour,
            color="white" if published else colour, hatch="////" if published else "",
            linestyle="--" if published else "-",
        )  # fmt: skip
        for place, mean, seeds in zip(places, means, values, strict=True):
            if len(seeds) > 1:
                axes.plot([place] * 2, [min(seeds), max(seeds)], color=INK, lw=1.0)
            axes.annotate(
                f"{mean:.2f}", (place, max([mean, *seeds])), (0, 2), textcoords="offset points",
                ha="center", fontsize=6.5, color=SOFT if published else INK,
            )  # fmt: skip
    axes.set_xticks(range(len(REGION_NAMES)), list(REGION_NAMES.values()))
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.12)
    title = stand_in_title("Where the answering position attends", view.suite.stand_in)
    tidy(axes, x="", y="share of attention", title=printable(title, 60))


def _layer_by_layer(panels: "Sequence[Axes]", view: View[Options]) -> None:
    """Draw the answer's share by layer under both normalisations."""
    layers = range(_layers(view))
    places = [layer + 1 for layer in layers]
    for axes, (signed, name) in zip(panels, _NORMALISATIONS.items(), strict=True):
        names = [share_name("answer", layer=layer, signed=signed) for layer in layers]
        metric_curves(axes, view, places, names, marks=4)
        tidy(axes, x="layer", y="", title=f"Answer, {name}")
        axes.set_xticks(places[:: -(-len(places) // _MOST_LAYERS)])
        axes.margins(x=0.1)
    panels[1].sharey(panels[0])
    panels[1].autoscale(axis="y")


def _layers(view: View[Options]) -> int:
    """Layers that every row has."""
    return min(int(row.facts.get("layers") or 0) for row in view.rows)


def _pictures(figure: "SubFigure", view: View[Options], examples: list[Example]) -> None:
    grid = figure.subplots(len(examples), 1, sharex=True, squeeze=False).ravel()
    limit = max(float(np.abs(example.weights).max()) for example in examples)
    for axes, row, example in zip(grid, view.rows, examples, strict=True):
        axes.imshow(
            _columns(example.weights), aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit,
            interpolation="nearest", extent=(-0.5, len(example.tokens) - 0.5, 1, 0),
        )  # fmt: skip
        _borders(axes, example)
        axes.set_title(printable(row.label), fontsize=9, pad=4)
        axes.set_ylabel("layer" if example.layers > 1 else "", fontsize=8)
    _words(grid[-1], examples[-1])
    figure.colorbar(
        grid[0].images[0], ax=grid, label="weight / sum of |weights|", shrink=0.7, pad=0.01
    )


def _borders(axes: "Axes", example: Example) -> None:
    """Name the layers at the left, and frame the answer from top to bottom."""
    middles = (np.arange(example.layers) + 0.5) / example.layers
    axes.set_yticks(middles, [str(layer + 1) for layer in range(example.layers)])
    axes.tick_params(length=0, labelsize=7.5)
    axes.grid(visible=False)
    for layer in range(1, example.layers):
        axes.axhline(layer / example.layers, color=FAINT, lw=1.0)
    regions = np.array(example.regions)
    for place in np.flatnonzero(regions[1:] != regions[:-1]):
        edge = "answer" in regions[place : place + 2]
        axes.axvline(
            place + 0.5, color=INK if edge else SOFT, lw=1.1 if edge else 0.8,
            ls="-" if edge else (0, (2, 2)),
        )  # fmt: skip


def _words(axes: "Axes", example: Example) -> None:
    """Words of the prompt, or the names of its regions where there are too many."""
    regions = np.array(example.regions)
    if len(example.tokens) <= _MOST_TOKENS:
        axes.set_xticks(range(len(example.tokens)), [printable(word) for word in example.tokens])
        axes.tick_params(axis="x", labelrotation=90, labelsize=7)
        for tick, region in zip(axes.get_xticklabels(), example.regions, strict=True):
            bold = region in ("answer", "query")
            tick.set_color(INK if bold else SOFT)
            tick.set_fontweight("bold" if bold else "normal")
        return
    shown = [region for region in ("before", "answer", "after", "query") if region in regions]
    middles = [float(np.flatnonzero(regions == region).mean()) for region in shown]
    axes.set_xticks(middles, [REGION_NAMES[region] for region in shown])


def _columns(weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """Long rows in fewer columns: of each, the weight that is largest in absolute value."""
    if weights.shape[1] <= _MOST_COLUMNS:
        return weights
    parts = np.array_split(weights, _MOST_COLUMNS, axis=1)
    return np.stack(
        [np.take_along_axis(p, np.abs(p).argmax(1)[:, None], 1)[:, 0] for p in parts], axis=1
    )


def _example(view: View[Options], row: RowSlice) -> Example:
    seed = view.seeds[0]
    rows = np.load(view.detail(row.run, seed, "example_rows.npy"), allow_pickle=False)
    prompt = json.loads(view.detail(row.run, seed, "example.json").read_text(encoding="utf-8"))
    weights = rows.reshape(-1, rows.shape[-1]).astype(np.float64)
    sums = np.abs(weights).sum(-1, keepdims=True)
    weights = weights / np.where(sums > 0, sums, 1.0)  # a threshold may leave a row empty
    return Example(weights, rows.shape[0], prompt["tokens"], prompt["regions"])
