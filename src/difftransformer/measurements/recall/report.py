"""Key-value retrieval: share of seeds that bind, steps to bind, accuracy by N, and learning."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.measurements.recall.settings import Options, accuracy_name
from difftransformer.reporting.cells import (
    DIFFERENCE,
    Place,
    censored_cells,
    mean_cells,
    paired_differences,
    seed_values,
    share_cell,
)
from difftransformer.reporting.collect import defined, metric
from difftransformer.reporting.conditions import shared_setting
from difftransformer.reporting.curves import draw, over_seeds
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import FAINT, INK, SOFT, printable, tidy
from difftransformer.reporting.panels import halves, log_ticks, one_a_row
from difftransformer.reporting.sections import (
    Metric,
    fact_cells,
    fact_columns,
    metric_frame,
    section_of,
)
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DECIMALS = 2
_PANELS = 4
_ASIDE = 0.022  # octaves between neighbouring rows, so that equal curves can be told apart


def section(view: View[Options]) -> Section:
    """Make the section; accuracies are shares of right answers, steps are optimiser steps."""
    numbers = view.options.needles
    metrics = [Metric(accuracy_name(n), f"N = {n} ↑") for n in numbers]
    columns = [
        *fact_columns(),
        Column(id="bound", header="Seeds that bind ↑"),
        Column(id="steps_to_bind", header="Steps to bind ↓"),
        *(
            Column(id=f"steps_to_bind_{what}", header=what, tidy_only=True)
            for what in ("min", "max", "censored")
        ),
        *(Column(id=one.id, header=one.header) for one in metrics),
    ]
    if view.compared:
        columns += [
            Column(id=accuracy_name(n) + DIFFERENCE, header=f"Δ N = {n}", tidy_only=True)
            for n in numbers
        ]
    accuracies = mean_cells(metric_frame(view, metrics, _DECIMALS), _DECIMALS, view.paper)
    cells = [
        *fact_cells(view),
        *(cell for row in view.rows for cell in _binding(view, row)),
        *accuracies,
        *paired_differences(view.rows, [one.id for one in metrics], accuracies, _DECIMALS),
    ]
    return section_of(view, columns, cells, _notes(view))


def figure(view: View[Options]) -> "Figure":
    """Draw accuracy above, and learning below, a panel for each row."""
    lines = -(-len(view.rows) // _PANELS)
    heights = (3.4, 1.9 * lines)
    figure, top, bottom = halves((11, sum(heights)), heights, 0.04)
    _by_needles(top.subplots(), view)
    probe = shared_setting(view.trained(), "training", "probe")
    for place, (axes, row, lowest) in enumerate(one_a_row(bottom, view.rows, _PANELS)):
        _learning(axes, view, row, probe)
        axes.set_xlabel("step" if lowest else "")
        if place % _PANELS:
            axes.set_ylabel("")
    return figure


def _binding(view: View[Options], row: RowSlice) -> list[Cell]:
    trained = view.trained(row)
    bound, steps = (
        [(result, metric(result, name)) for result in trained]
        for name in ("bound", "steps_to_bind")
    )
    budget = max(defined(result, "steps") for result in trained)
    times = seed_values(steps, 0, f"> {budget:.0f}")
    return [
        share_cell(Place(row.run, "bound"), seed_values(bound, 0)),
        *censored_cells(Place(row.run, "steps_to_bind"), times, budget),
    ]


def _notes(view: View[Options]) -> list[str]:
    trained, suite = view.trained(), view.suite
    probe = shared_setting(trained, "training", "probe")
    steps = max(defined(result, "steps") for result in trained)
    notes = [
        f"A seed binds at the first probe with an accuracy of at least {probe['bind_threshold']} "
        f"at N = {probe['bind_needles']} pairs; probes are {probe['every']} steps apart. Seeds "
        f"that do not bind in {steps:.0f} steps are censored. Share: Wilson's 95% interval. Steps: "
        "median (smallest to largest of those that bind).",
        f"Accuracy: share of right answers among the whole vocabulary, {suite.queries} queries in "
        f"each of {suite.samples} rows for every N; guessing among the values of a row gives 1/N.",
        view.training_note(),
    ]
    if view.compared:
        notes.append(f"The csv also has paired differences of accuracy: {view.compared_with()}.")
    return notes


def _by_needles(axes: "Axes", view: View[Options]) -> None:
    numbers, look = view.options.needles, view.look
    guessing = [1 / n for n in numbers]
    axes.plot(numbers, guessing, color=INK, lw=1, ls=(0, (2, 2)), label="guessing, 1/N")
    for place, row in enumerate(view.rows):
        aside = 2 ** (_ASIDE * (place - (len(view.rows) - 1) / 2))
        found = view.evaluated(row)
        values = [[defined(result, accuracy_name(n)) for n in numbers] for result in found]
        curve = over_seeds([n * aside for n in numbers], values)
        draw(axes, curve, look[row.run], printable(row.label), marks=4.5)
    log_ticks(axes, numbers, list(map(str, numbers)), base=2)
    axes.set_ylim(0, 1.04)
    tidy(axes, x="pairs in the row, N", y="accuracy", title="Accuracy after training")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=2.6)


def _learning(axes: "Axes", view: View[Options], row: RowSlice, probe: dict[str, float]) -> None:
    """Probe accuracy by step, one line a seed, a dot where the seed binds."""
    needles, threshold = int(probe["bind_needles"]), probe["bind_threshold"]
    axes.axhline(threshold, color=FAINT, lw=1.2)
    axes.axhline(1 / needles, color=INK, lw=0.8, ls=(0, (2, 2)))
    look, bound = view.look[row.run], 0
    for seed, result in zip(view.seeds, view.trained(row), strict=True):
        series = view.results.histories.series(row.run, seed, accuracy_name(needles))
        axes.plot(series.steps, series.values, color=look.colour, lw=1.1, alpha=0.85)
        step = metric(result, "steps_to_bind")
        if step is not None:
            bound += 1
            height = series.values[series.steps.index(int(step))]
            axes.plot([step], [height], "o", color=look.colour, ms=5, mec="white", mew=0.8)
    tidy(axes, x="", y=f"accuracy, N = {needles}")
    axes.set_title(printable(row.label, 30), fontsize=8.5, pad=6)
    axes.text(
        0.98, 0.5, f"{bound}/{len(view.seeds)} bind", transform=axes.transAxes,
        ha="right", va="center", color=SOFT, fontsize=8,
    )  # fmt: skip
    axes.set_ylim(0, 1.04)
