"""Contextual hallucination as a picture: share free of it by set, beside the published shares."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice
from difftransformer.config.hallucination_sets import HALLUCINATION_SETS
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import Paper
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.conditions import evaluated
from difftransformer.reporting.drawing import FAINT, INK, Look, legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.hallucination import (
    judged_part,
    set_label,
    share,
    suite_of,
)
from difftransformer.reporting.statistics import mean_interval, wilson_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BREADTH = 0.8  # of a set's place on the axis, shared by its rows


class Bar(NamedTuple):
    """One bar: its height, its interval where there is one, and the values of the seeds."""

    height: float
    low: float | None
    high: float | None
    seeds: Sequence[float]


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw the first section by its first judge: ours on the left, published on the right."""
    import matplotlib.pyplot as plt

    del histories
    part = artifact.sections[0]
    suite = suite_of(artifact, part, results)
    reading = judged_part(part, part.judges[0])
    look = looks([row.run for row in part.rows])
    figure = plt.figure(figsize=(11, 4.2), layout="constrained")
    ours, theirs = figure.subplots(1, 2, sharey=True)
    sets = list(suite.set_tasks)
    measured = {
        (row.run, name): bar
        for row in part.rows
        for found in [evaluated(artifact, reading, [row], results)]
        for name in sets
        if (bar := _bar(found, name)) is not None
    }
    _panel(ours, part.rows, sets, measured, look)
    tidy(ours, x="", y="share free of hallucination", title=f"Scale {artifact.scale}")
    paper = Paper(artifact.paper)
    published = {
        (row.run, name): Bar(value, None, None, ())
        for row in part.rows
        for name in HALLUCINATION_SETS
        if (value := paper.number(row.run, name)) is not None
    }
    _panel(theirs, part.rows, list(HALLUCINATION_SETS), published, look)
    tidy(theirs, x="", y="", title="Published")
    legend_below(figure, ours)
    return figure


def _bar(found: Sequence[Result], name: str) -> Bar | None:
    """Mean over the seeds that were judged with its t interval; of one with Wilson's."""
    judged = [one for one in found if share(name)(one) is not None]
    if not judged:
        return None
    known = [defined(one, f"free_{name}") for one in judged]
    mean, _, low, high, _ = mean_interval(known)
    if len(judged) == 1:
        answers = int(defined(judged[0], f"judged_{name}"))
        low, high = wilson_interval(round(mean * answers), answers)
    return Bar(mean, low, high, known)


def _panel(
    axes: "Axes",
    rows: Sequence[RowSlice],
    sets: Sequence[str],
    bars: dict[tuple[str, str], Bar],
    look: dict[str, Look],
) -> None:
    shown = [row for row in rows if any((row.run, name) in bars for name in sets)]
    breadth = _BREADTH / max(1, len(shown))
    for index, row in enumerate(shown):
        middle = breadth * (index + 0.5) - _BREADTH / 2
        label: str | None = printable(row.label)
        for place, name in enumerate(sets):
            bar = bars.get((row.run, name))
            if bar is None:
                continue
            x = place + middle
            axes.bar(x, bar.height, 0.9 * breadth, color=look[row.run].colour, label=label)
            label = None
            if bar.low is not None and bar.high is not None:
                axes.plot([x, x], [max(0, bar.low), min(1, bar.high)], color=INK, lw=1)
            if len(bar.seeds) > 1:
                places = [x] * len(bar.seeds)
                axes.plot(places, bar.seeds, "o", color="white", mec=INK, mew=0.7, ms=3)
    axes.set_xticks(range(len(sets)), [set_label(name).replace(", ", "\n") for name in sets])
    axes.set_ylim(0, 1.04)
    axes.grid(visible=False, axis="x")
    axes.grid(color=FAINT, axis="y")
