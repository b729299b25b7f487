"""Accuracy by order of the same demonstrations, one panel a section, beside the published."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.conditions import evaluated
from difftransformer.reporting.drawing import SOFT, Look, legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.many_shot import by_order, orders_name, section_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GAP = 0.9
_CHARACTERS = 11  # of a title in an inch


class Strip(NamedTuple):
    """Accuracies of one model over orders, and whether they are published."""

    run: str
    values: Sequence[float]
    published: bool


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw a panel for each section; every training seed is a strip of its own."""
    import matplotlib.pyplot as plt

    del histories
    parts = artifact.sections
    look = looks([row.run for row in parts[0].rows])
    breadth = max(3.0, 12.6 / len(parts))
    figure, grid = plt.subplots(
        1, len(parts), figsize=(breadth * len(parts), 3.8), layout="constrained", squeeze=False,
        sharey=True,
    )  # fmt: skip
    for column, part in enumerate(parts):
        _panel(grid[0][column], artifact, part, results, look, int(_CHARACTERS * breadth))
        if column:
            grid[0][column].set_ylabel("")
    legend_below(figure, grid[0][0])
    return figure


def _panel(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    results: Results,
    look: dict[str, Look],
    width: int,
) -> None:
    asked = evaluated(artifact, part, part.rows, results)
    labels = {row.run: row.label for row in part.rows}
    place = 0.0
    ours, theirs = _ours(artifact, part, results), _theirs(artifact, part, orders_name(asked))
    for strips in (ours, theirs):
        for before, strip in zip([None, *strips], strips, strict=False):
            place += 1.0 if before is None or before.run == strip.run else 1.0 + _GAP
            first = not strip.published and (before is None or before.run != strip.run)
            _strip(axes, place, strip, look[strip.run], labels[strip.run] if first else "")
        if strips is ours:  # the published sets may have other classes
            chance = 100 * defined(asked[0], "chance")
            axes.hlines(
                chance, 0.5, place + 0.5, color=SOFT, lw=0.9, ls=(0, (4, 3)),
                label="guessing on our items",
            )  # fmt: skip
        place += 2 * _GAP
    axes.set_xticks([])
    axes.set_ylim(0, 108)
    tidy(axes, x="training seeds, then published", y="accuracy, %")
    axes.set_title(printable(section_title(part, asked), width), fontsize=8.5, pad=6)
    axes.grid(visible=False, axis="x")


def _ours(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> list[Strip]:
    return [
        Strip(row.run, by_order(one), published=False)
        for row in part.rows
        for one in evaluated(artifact, part, [row], results)
    ]


def _theirs(artifact: ArtifactSlice, part: SectionSlice, name: str) -> list[Strip]:
    """Published accuracies of the rows shown, of the same set and kind of order."""
    published = {} if artifact.paper is None else artifact.paper.rows
    found = []
    for row in part.rows:
        values = published[row.run].values if row.run in published else {}
        orders = [
            float(value)
            for column, value in values.items()
            if value is not None
            and column.startswith(f"{name}_o")
            and column[len(name) + 2 :].isdigit()
        ]
        if orders:
            found.append(Strip(row.run, orders, published=True))
    return found


def _strip(axes: "Axes", place: float, strip: Strip, look: Look, label: str) -> None:
    best, worst = max(strip.values), min(strip.values)
    spread = 0.5 / max(1, len(strip.values) - 1)
    xs = [place - 0.25 + spread * index for index in range(len(strip.values))]
    axes.plot([place, place], [worst, best], color=look.colour, lw=5, alpha=0.22)
    axes.plot(
        xs, strip.values, look.marker, ls="none", color=look.colour, ms=3, mew=0.7,
        mfc="white" if strip.published else look.colour, label=printable(label) or None,
    )  # fmt: skip
    axes.text(place, best + 1.5, f"{best - worst:.0f}", ha="center", fontsize=7, color=look.colour)
