"""Attention of the answering position: shares by region, and one prompt as a picture."""

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.reporting.cells import Paper
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.conditions import evaluated
from difftransformer.reporting.drawing import FAINT, INK, SOFT, Look, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.attention import REGIONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

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


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw the figure of the first section."""
    import matplotlib.pyplot as plt

    part = artifact.sections[0]
    look = looks([row.run for row in part.rows])
    examples = [_example(artifact, part, row, results) for row in part.rows]
    figure = plt.figure(figsize=(11, 3.3 + 1.75 * len(examples)), layout="constrained")
    heights = (3.3, 1.75 * len(examples))
    halves = figure.subfigures(2, 1, squeeze=False, height_ratios=heights, hspace=0.03)
    top, bottom = halves.ravel()
    _shares(top.subplots(), artifact, part, results, look)
    _pictures(bottom, part, examples)
    return figure


def _shares(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    look: dict[str, Look],
) -> None:
    paper = Paper(artifact.paper)
    bars: list[tuple[str, str, list[list[float]], bool]] = []
    for row in part.rows:
        found = evaluated(artifact, part, [row], results)
        measured = [[defined(result, region) for result in found] for region in REGIONS]
        bars.append((row.run, row.label, measured, False))
        printed = [paper.number(row.run, region) for region in REGIONS]
        known = [[value] for value in printed if value is not None]
        if len(known) == len(printed):
            bars.append((row.run, f"{row.label}, published", known, True))
    breadth = 0.82 / len(bars)
    for index, (run, label, values, published) in enumerate(bars):
        places = [place + breadth * (index + 0.5) - 0.41 for place in range(len(REGIONS))]
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
    axes.set_xticks(range(len(REGIONS)), list(REGIONS.values()))
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.12)
    tidy(axes, x="", y="share of attention", title="Where the answering position attends")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))


def _pictures(figure: "SubFigure", part: SectionSlice, examples: list[Example]) -> None:
    grid = figure.subplots(len(examples), 1, sharex=True, squeeze=False).ravel()
    limit = max(float(np.abs(example.weights).max()) for example in examples)
    for axes, row, example in zip(grid, part.rows, examples, strict=True):
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
    if len(example.tokens) <= _MOST_TOKENS:
        axes.set_xticks(range(len(example.tokens)), [printable(word) for word in example.tokens])
        axes.tick_params(axis="x", labelrotation=90, labelsize=7)
        for tick, region in zip(axes.get_xticklabels(), example.regions, strict=True):
            bold = region in ("answer", "query")
            tick.set_color(INK if bold else SOFT)
            tick.set_fontweight("bold" if bold else "normal")
        return
    regions = np.array(example.regions)
    shown = [region for region in ("before", "answer", "after", "query") if region in regions]
    middles = [float(np.flatnonzero(regions == region).mean()) for region in shown]
    axes.set_xticks(middles, [REGIONS[region] for region in shown])


def _columns(weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """Long rows in fewer columns: of each, the weight that is largest in absolute value."""
    if weights.shape[1] <= _MOST_COLUMNS:
        return weights
    parts = np.array_split(weights, _MOST_COLUMNS, axis=1)
    return np.stack(
        [np.take_along_axis(p, np.abs(p).argmax(1)[:, None], 1)[:, 0] for p in parts], axis=1
    )


def _example(
    artifact: ArtifactSlice, part: SectionSlice, row: RowSlice, results: Results
) -> Example:
    """Read the example of the first seed, which is the same prompt in every row."""
    where = (part.suites[0], row.run, artifact.seeds[0])
    rows = np.load(results.detail(*where, "example_rows.npy"), allow_pickle=False)
    prompt = json.loads(results.detail(*where, "example.json").read_text(encoding="utf-8"))
    weights = rows.reshape(-1, rows.shape[-1]).astype(np.float64)
    sums = np.abs(weights).sum(-1, keepdims=True)
    weights = weights / np.where(sums > 0, sums, 1.0)  # a threshold may leave a row empty
    return Example(weights, rows.shape[0], prompt["tokens"], prompt["regions"])
