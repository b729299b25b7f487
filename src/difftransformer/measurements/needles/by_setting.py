"""Accuracy by setting [N, R] as a picture, with a panel by depth for each setting."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.measurements.needles.settings import Options, accuracy_name, group_name
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import defined
from difftransformer.reporting.curves import draw, over_seeds
from difftransformer.reporting.drawing import FAINT, SOFT, Look, printable, tidy
from difftransformer.reporting.statistics import wilson_interval
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BREADTH = 0.72  # of a setting's place on the axis, shared by its rows


def figure(view: View[Options]) -> "Figure":
    """Draw settings above, and depths of each below."""
    import matplotlib.pyplot as plt

    pairs = view.suite.pairs
    figure = plt.figure(figsize=(11, 6.6), layout="constrained")
    halves = figure.subfigures(2, 1, squeeze=False, height_ratios=(3.7, 2.9), hspace=0.04)
    top, bottom = halves.ravel()
    _by_setting(top.subplots(), view)
    grid = bottom.subplots(1, len(pairs), sharex=True, sharey=True, squeeze=False).ravel()
    for axes, pair in zip(grid, pairs, strict=True):
        _by_depth(axes, view, pair)
    for axes in grid[1:]:
        axes.set_ylabel("")
    return figure


def answers_interval(result: Result, group: str) -> tuple[float, float]:
    """Wilson's interval of the answers of one result; ``group`` as `group_name` has it.

    Raises:
        UserError: they were not measured.
    """
    correct, asked = (defined(result, f"{name}_{group}") for name in ("correct", "asked"))
    return wilson_interval(int(correct), int(asked))


def _by_setting(axes: "Axes", view: View[Options]) -> None:
    paper, pairs, look = view.paper, view.suite.pairs, view.look
    for index, row in enumerate(view.rows):
        middle = _BREADTH * ((index + 0.5) / len(view.rows) - 0.5)
        places = [place + middle for place in range(len(pairs))]
        _seeds(axes, view, row, places, look[row.run])
        published = [paper.number(row.run, group_name(pair)) for pair in pairs]
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
    axes: "Axes", view: View[Options], row: RowSlice, places: list[float], look: Look
) -> None:
    """Seeds as small marks with their intervals, means over seeds as large ones."""
    found = view.evaluated(row)
    breadth = _BREADTH / len(view.rows)
    means = []
    for pair, place in zip(view.suite.pairs, places, strict=True):
        values = [defined(result, accuracy_name(pair)) for result in found]
        means.append(sum(values) / len(values))
        for index, (result, value) in enumerate(zip(found, values, strict=True)):
            x = place + 0.62 * breadth * ((index + 0.5) / len(found) - 0.5)
            low, high = answers_interval(result, group_name(pair))
            axes.plot([x, x], [low, high], color=look.colour, lw=1.1, alpha=0.45)
            axes.plot([x], [value], "o", color=look.colour, ms=3, mew=0, alpha=0.6)
    axes.plot(
        places, means, look.marker, color=look.colour, ms=7.5, mew=0.8, mec="white", ls="",
        zorder=3, label=printable(row.label),
    )  # fmt: skip


def _by_depth(axes: "Axes", view: View[Options], pair: list[int]) -> None:
    depths, look = view.suite.depths, view.look
    for row in view.rows:
        names = [accuracy_name(pair, depth=depth) for depth in depths]
        values = [[defined(result, name) for name in names] for result in view.evaluated(row)]
        # The legend is above.
        draw(axes, over_seeds(depths, values), look[row.run], "_", marks=4)
    axes.axhline(1 / pair[0], color=SOFT, lw=0.8, ls=(0, (2, 2)))
    axes.set_ylim(-0.04, 1.06)
    axes.set_xticks(depths)
    tidy(axes, x="depth of the answer, %", y="accuracy")
    axes.set_title(f"N = {pair[0]}, R = {pair[1]}", fontsize=9, pad=6)
