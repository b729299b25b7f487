"""Contextual hallucination as a picture: share free of it by set, beside the published shares."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.config.judges import judged_suite
from difftransformer.config.measurement import Options
from difftransformer.measurements.hallucination.settings import (
    HALLUCINATION_SETS,
    Suite,
    set_label,
    set_metric,
)
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import Paper, Place, mean_cell, seed_values
from difftransformer.reporting.collect import defined
from difftransformer.reporting.drawing import FAINT, INK, Look, legend_below, printable, tidy
from difftransformer.reporting.panels import panels
from difftransformer.reporting.statistics import wilson_interval
from difftransformer.reporting.view import View, shared_suite

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DECIMALS = 2
_BREADTH = 0.8  # of a set's place on the axis, shared by its rows


class Bar(NamedTuple):
    """One bar: its height, its interval where there is one, and the values of the seeds."""

    height: float
    low: float | None
    high: float | None
    seeds: Sequence[float]


def figure(view: View[Options]) -> "Figure":
    """Draw the section by its first judge: ours on the left, published on the right."""
    sets, reading = list(asked(view).set_tasks), judged_view(view, view.part.judges[0])
    figure, ((ours, theirs),) = panels(1, 2, (11, 4.2), sharey=True)
    measured = {
        (row.run, name): bar
        for row in view.rows
        for found in [reading.evaluated(row)]
        for name in sets
        if (bar := _bar(found, name)) is not None
    }
    _panel(ours, view.rows, sets, measured, view.look)
    tidy(ours, x="", y="share free of hallucination", title=f"Scale {view.artifact.scale}")
    published = {
        (row.run, name): Bar(value, None, None, ())
        for row in view.rows
        for name in HALLUCINATION_SETS
        if (value := view.paper.number(row.run, name)) is not None
    }
    _panel(theirs, view.rows, list(HALLUCINATION_SETS), published, view.look)
    tidy(theirs, x="", y="", title="Published")
    legend_below(figure, ours)
    return figure


def asked(view: View[Options]) -> Suite:
    """Return the settings that all rows were asked with, whoever judges.

    Raises:
        UserError: a result is missing, or they differ.
    """
    suite: Suite = shared_suite(
        [
            view.results.judgement(view.part.suites[0], judge, row.run, seed)
            for judge in view.part.judges
            for row in view.rows
            for seed in view.seeds
        ]
    )
    return suite


def judged_view(view: View[Options], judge: str) -> View[Options]:
    """Return the section as one that reads the judge's results instead of the suite's own."""
    return view.having(suites=[judged_suite(view.part.suites[0], judge)])


def share(name: str) -> Callable[[Result], float | None]:
    """Share of a set's judged answers that are free of hallucination; None for an absent set."""

    def value(result: Result) -> float | None:
        found = result.metrics.get(set_metric("free", name))
        return None if found is None else float(found)

    return value


def _bar(found: Sequence[Result], name: str) -> Bar | None:
    """Mean over the seeds that were judged with its interval; of one with Wilson's."""
    by_seed, metric = [(one, share(name)(one)) for one in found], set_metric("free", name)
    seeds = seed_values(by_seed, _DECIMALS, terms={metric: 1.0})
    mean = mean_cell(Place("", name), seeds, _DECIMALS, Paper(None))
    if mean.value is None:
        return None
    low, high = mean.ci_low, mean.ci_high
    if mean.n == 1:
        (judged,) = (one for one, value in by_seed if value is not None)
        answers = int(defined(judged, set_metric("judged", name)))
        low, high = wilson_interval(round(mean.value * answers), answers)
    return Bar(mean.value, low, high, list(mean.by_seed().values()))


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
