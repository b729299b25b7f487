"""Multi-needle retrieval as a picture: accuracy by setting, and by depth for each setting."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.reporting.cells import Paper
from difftransformer.reporting.collect import Results
from difftransformer.reporting.conditions import evaluated, shared_setting
from difftransformer.reporting.curves import draw, over_seeds
from difftransformer.reporting.drawing import FAINT, SOFT, Look, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.needles import accuracy, answers_interval, pair_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BREADTH = 0.72  # of a setting's place on the axis, shared by its rows


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw the figure of the first section."""
    import matplotlib.pyplot as plt

    part = artifact.sections[0]
    look = looks([row.run for row in part.rows])
    asked = evaluated(artifact, part, part.rows, results)
    pairs: list[list[int]] = shared_setting(asked, "config", "pairs")
    depths: list[int] = shared_setting(asked, "config", "depths")
    figure = plt.figure(figsize=(11, 6.6), layout="constrained")
    halves = figure.subfigures(2, 1, squeeze=False, height_ratios=(3.7, 2.9), hspace=0.04)
    top, bottom = halves.ravel()
    _by_setting(top.subplots(), artifact, part, results, pairs, look)
    grid = bottom.subplots(1, len(pairs), sharex=True, sharey=True, squeeze=False).ravel()
    for axes, pair in zip(grid, pairs, strict=True):
        _by_depth(axes, artifact, part, results, pair, depths, look)
    for axes in grid[1:]:
        axes.set_ylabel("")
    return figure


def _by_setting(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    pairs: list[list[int]],
    look: dict[str, Look],
) -> None:
    paper = Paper(artifact.paper)
    for index, row in enumerate(part.rows):
        middle = _BREADTH * ((index + 0.5) / len(part.rows) - 0.5)
        places = [place + middle for place in range(len(pairs))]
        _seeds(axes, artifact, part, row, results, pairs, places, look[row.run])
        published = [paper.number(row.run, pair_name(pair)) for pair in pairs]
        if any(value is not None for value in published):
            axes.plot(
                places, [float("nan") if v is None else v for v in published], look[row.run].marker,
                color=look[row.run].colour, mfc="white", ms=7, mew=1.3, ls=(0, (3, 2)), lw=0.9,
                alpha=0.9, zorder=1.5, label=f"{printable(row.label)}, published",
            )  # fmt: skip
    for place in range(1, len(pairs)):
        axes.axvline(place - 0.5, color=FAINT, lw=0.8)
    axes.set_xticks(range(len(pairs)), [f"N = {n}, R = {r}" for n, r in pairs])
    axes.set_xlim(-0.5, len(pairs) - 0.5)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(-0.04, 1.06)
    tidy(axes, x="needles in the context N, needles asked for R", y="accuracy",
         title="Accuracy, mean over depths")  # fmt: skip
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=2.6)


def _seeds(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    row: RowSlice,
    results: Results,
    pairs: list[list[int]],
    places: list[float],
    look: Look,
) -> None:
    """Seeds as small marks with their intervals, means over seeds as large ones."""
    found = evaluated(artifact, part, [row], results)
    breadth = _BREADTH / len(part.rows)
    means = []
    for pair, place in zip(pairs, places, strict=True):
        values = [accuracy(result, pair_name(pair)) for result in found]
        means.append(sum(values) / len(values))
        for index, (result, value) in enumerate(zip(found, values, strict=True)):
            x = place + 0.62 * breadth * ((index + 0.5) / len(found) - 0.5)
            low, high = answers_interval(result, pair_name(pair))
            axes.plot([x, x], [low, high], color=look.colour, lw=1.1, alpha=0.45)
            axes.plot([x], [value], "o", color=look.colour, ms=3, mew=0, alpha=0.6)
    axes.plot(
        places, means, look.marker, color=look.colour, ms=7.5, mew=0.8, mec="white", ls="",
        zorder=3, label=printable(row.label),
    )  # fmt: skip


def _by_depth(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    pair: list[int],
    depths: list[int],
    look: dict[str, Look],
) -> None:
    for row in part.rows:
        found = evaluated(artifact, part, [row], results)
        values = [
            [accuracy(result, f"{pair_name(pair)}_d{depth}") for depth in depths]
            for result in found
        ]
        curve = over_seeds(depths, values)
        draw(axes, curve, look[row.run], "_")  # the legend is above
        axes.plot(
            curve.x, curve.mean, look[row.run].marker, color=look[row.run].colour, ms=4, mew=0
        )
    axes.axhline(1 / pair[0], color=SOFT, lw=0.8, ls=(0, (2, 2)))
    axes.set_ylim(-0.04, 1.06)
    axes.set_xticks(depths)
    tidy(axes, x="depth of the answer, %", y="accuracy")
    axes.set_title(f"N = {pair[0]}, R = {pair[1]}", fontsize=9, pad=6)
