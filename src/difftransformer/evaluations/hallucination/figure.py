"""Share of answers free of hallucination by set, beside the published shares, as a figure."""

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
    """Draw the first judge's shares: measured on the left, published on the right."""
    sets, judge_view = list(shared_settings(view).set_tasks), judged_view(view, view.part.judges[0])
    figure, ((measured_axes, published_axes),) = panels(1, 2, (11, 4.2), sharey=True)
    measured = cell_estimates(
        _share(judge_view.evaluated(row), row.run, name) for row in view.rows for name in sets
    )
    published = [
        point
        for row in view.rows
        for name in HALLUCINATION_SETS
        for point in estimate(name, row.run, view.paper.number(row.run, name))
    ]
    for axes, points, names, title in (
        (measured_axes, measured, sets, f"Scale {view.artifact.scale}"),
        (published_axes, published, list(HALLUCINATION_SETS), "Published"),
    ):
        labels = {name: set_label(name).replace(", ", "\n") for name in names}
        estimates(axes, points, view.look, labels)
        axes.set_ylim(0, 1.04)
        y = "share free of hallucination" if axes is measured_axes else ""
        tidy(axes, x="", y=y, title=title)
    legend_below(figure, row_signs(view.rows, view.look, line=0, mark=6))
    return figure


def shared_settings(view: View[Options]) -> Suite:
    """Return the generation settings, which must be the same for all models and judges.

    Raises:
        UserError: A result is missing, or the settings differ.
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
    """Return the section with the results of a judge in place of the suite's."""
    return view.having(suites=[judged_suite(view.part.suites[0], judge)])


def share(name: str) -> Callable[[Result], float | None]:
    """Return a function that reads a set's share of faithful answers; None for an absent set."""

    def read_share(result: Result) -> float | None:
        value = result.metrics.get(set_metric("faithful", name))
        return None if value is None else float(value)

    return read_share


def _share(results: Sequence[Result], run: str, name: str) -> Cell:
    """Mean share over the judged seeds with its interval; for a single seed Wilson's interval."""
    by_seed = [(result, share(name)(result)) for result in results]
    seeds = seed_values(by_seed, _DECIMALS, terms={set_metric("faithful", name): 1.0})
    cell = mean_cell(Place(run, name), seeds, _DECIMALS, Paper(None))
    if cell.value is not None and cell.n == 1:
        (judged,) = (result for result, value in by_seed if value is not None)
        answers = int(defined(judged, set_metric("judged", name)))
        low, high = wilson_interval(round(cell.value * answers), answers)
        cell = cell.model_copy(update={"ci_low": low, "ci_high": high})
    return cell
