"""Contextual hallucination as a picture: share free of it by set, beside the published shares."""

from collections.abc import Callable, Sequence

from difftransformer.config.evaluation import Options
from difftransformer.config.judges import judged_suite
from difftransformer.evaluations.hallucination.settings import (
    HALLUCINATION_SETS,
    Suite,
    set_label,
    set_metric,
)
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import Paper, Place, mean_cell, seed_values
from difftransformer.reporting.charts import cell_estimates, estimate, estimates
from difftransformer.reporting.collect import defined
from difftransformer.reporting.document import Cell
from difftransformer.reporting.drawing import Figure, legend_below, tidy
from difftransformer.reporting.panels import panels, row_signs
from difftransformer.reporting.statistics import wilson_interval
from difftransformer.reporting.view import View, shared_suite

_DECIMALS = 2


def figure(view: View[Options]) -> Figure:
    """Draw the section by its first judge: ours on the left, published on the right."""
    sets, reading = list(asked(view).set_tasks), judged_view(view, view.part.judges[0])
    figure, ((ours, theirs),) = panels(1, 2, (11, 4.2), sharey=True)
    measured = cell_estimates(
        _share(reading.evaluated(row), row.run, name) for row in view.rows for name in sets
    )
    published = [
        one
        for row in view.rows
        for name in HALLUCINATION_SETS
        for one in estimate(name, row.run, view.paper.number(row.run, name))
    ]
    for axes, found, names, title in (
        (ours, measured, sets, f"Scale {view.artifact.scale}"),
        (theirs, published, list(HALLUCINATION_SETS), "Published"),
    ):
        places = {name: set_label(name).replace(", ", "\n") for name in names}
        estimates(axes, found, view.look, places)
        axes.set_ylim(0, 1.04)
        tidy(axes, x="", y="share free of hallucination" if axes is ours else "", title=title)
    legend_below(figure, row_signs(view.rows, view.look, line=0, mark=6))
    return figure


def asked(view: View[Options]) -> Suite:
    """Return the settings that all rows were asked with, whoever judges.

    Raises:
        UserError: a result is missing, or they differ.
    """
    suite: Suite = shared_suite(
        [
            view.results.judgment(view.part.suites[0], judge, row.run, seed)
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


def _share(found: Sequence[Result], run: str, name: str) -> Cell:
    """Mean over the seeds that were judged with its interval; of one with Wilson's."""
    by_seed, metric = [(one, share(name)(one)) for one in found], set_metric("free", name)
    seeds = seed_values(by_seed, _DECIMALS, terms={metric: 1.0})
    cell = mean_cell(Place(run, name), seeds, _DECIMALS, Paper(None))
    if cell.value is not None and cell.n == 1:
        (judged,) = (one for one, value in by_seed if value is not None)
        answers = int(defined(judged, set_metric("judged", name)))
        low, high = wilson_interval(round(cell.value * answers), answers)
        cell = cell.model_copy(update={"ci_low": low, "ci_high": high})
    return cell
