"""Figure 10: accuracy by set of mathematics after stage 2, and the mean length of output."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.config.suites.base import AVERAGE
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import Paper
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.conditions import evaluated, shared_setting, stand_in_title
from difftransformer.reporting.drawing import FAINT, Look, legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.mathematics import accuracy, label_of, stand_in
from difftransformer.reporting.statistics import mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BREADTH = 0.7  # of a set's place on the axis, shared by its rows
_ERRORS = 1.96


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw the first section: accuracies above, lengths of output below."""
    import matplotlib.pyplot as plt

    del histories
    part = artifact.sections[0]
    look = looks([row.run for row in part.rows])
    found = evaluated(artifact, part, part.rows, results)
    items = stand_in(found)
    paper = Paper(artifact.paper if items is None else None)
    names = [*shared_setting(found, "config", "tasks"), AVERAGE]
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(11, 6.4), layout="constrained", height_ratios=(3, 2), sharex=True
    )
    for index, row in enumerate(part.rows):
        middle = _BREADTH * ((index + 0.5) / len(part.rows) - 0.5)
        own = evaluated(artifact, part, [row], results)
        places = [place + middle for place in range(len(names))]
        _marks(top, places, own, names, accuracy, look[row.run], printable(row.label))
        _marks(
            bottom, places, own, [f"{name}_tokens" for name in names], defined, look[row.run], "_"
        )
        _errors(top, places, own, names, look[row.run])
        _published(top, places, paper, row, names, look[row.run])
    for axes in (top, bottom):
        for place in range(1, len(names)):
            axes.axvline(place - 0.5, color=FAINT, lw=1.4 if place == len(names) - 1 else 0.8)
        axes.grid(visible=False, axis="x")
        axes.set_ylim(bottom=0)
    bottom.set_xticks(range(len(names)), [label_of(name) for name in names])
    bottom.set_xlim(-0.5, len(names) - 0.5)
    tidy(top, x="", y="accuracy, %", title=stand_in_title(part.title, items))
    tidy(bottom, x="", y="tokens", title=_lengths_title(paper, part))
    legend_below(figure, top, ncols=3)
    return figure


def _marks(
    axes: "Axes",
    places: Sequence[float],
    found: Sequence[Result],
    names: Sequence[str],
    value: Callable[[Result, str], float],
    look: Look,
    label: str,
) -> None:
    """Seeds as small marks, their mean as a large one."""
    for result in found:
        axes.plot(
            places, [value(result, name) for name in names], "o", color=look.colour, ms=3, mew=0,
            alpha=0.5,
        )  # fmt: skip
    means = [sum(value(result, name) for result in found) / len(found) for name in names]
    axes.plot(
        places, means, look.marker, color=look.colour, ms=7, mew=0.8, mec="white", ls="", zorder=3,
        label=label,
    )  # fmt: skip


def _errors(
    axes: "Axes",
    places: Sequence[float],
    found: Sequence[Result],
    names: Sequence[str],
    look: Look,
) -> None:
    """The t interval of the mean over seeds; of one seed 1.96 standard errors over its items."""
    for place, name in zip(places, names, strict=True):
        middle, _, low, high, _ = mean_interval([accuracy(result, name) for result in found])
        if low is None or high is None:
            reach = _ERRORS * accuracy(found[0], f"{name}_stderr")
            low, high = middle - reach, middle + reach
        axes.plot(
            [place] * 2, [max(0.0, low), min(100.0, high)], color=look.colour, lw=1.1, alpha=0.6
        )


def _published(
    axes: "Axes",
    places: Sequence[float],
    paper: Paper,
    row: RowSlice,
    names: Sequence[str],
    look: Look,
) -> None:
    values = [paper.number(row.run, name) for name in names]
    known = [(x, y) for x, y in zip(places, values, strict=True) if y is not None]
    if known:
        axes.plot(
            [x for x, _ in known], [y for _, y in known], look.marker, color=look.colour,
            mfc="white", ms=7, mew=1.2, ls="", zorder=2, label=f"{printable(row.label)}, published",
        )  # fmt: skip


def _lengths_title(paper: Paper, part: SectionSlice) -> str:
    known = [
        f"{row.label} {value:.0f}"
        for row in part.rows
        if (value := paper.number(row.run, f"{AVERAGE}_tokens")) is not None
    ]
    return "Mean length of output" + (f" (published: {', '.join(known)})" if known else "")
