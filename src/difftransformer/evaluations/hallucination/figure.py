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
from difftransformer.reporting.cells import CellKey, PublishedValues, mean_cell, seed_values
from difftransformer.reporting.charts import cell_estimates, draw_estimates, make_estimates
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Cell
from difftransformer.reporting.drawing import Figure, label_axes, legend_below
from difftransformer.reporting.panels import row_legend, subplot_grid
from difftransformer.reporting.section_context import SectionContext, shared_suite
from difftransformer.reporting.statistics import wilson_interval

_DECIMALS = 2


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the first judge's shares: measured on the left, published on the right."""
    sets, judge_view = (
        list(shared_settings(context).set_tasks),
        judged_view(context, context.section.judges[0]),
    )
    figure, ((measured_axes, published_axes),) = subplot_grid(1, 2, (11, 4.2), sharey=True)
    measured = cell_estimates(
        _share(judge_view.eval_results(row), row.run, name) for row in context.rows for name in sets
    )
    published = [
        point
        for row in context.rows
        for name in HALLUCINATION_SETS
        for point in make_estimates(name, row.run, context.published.number(row.run, name))
    ]
    for axes, points, names, title in (
        (measured_axes, measured, sets, f"Scale {context.artifact.scale}"),
        (published_axes, published, list(HALLUCINATION_SETS), "Published"),
    ):
        labels = {name: set_label(name).replace(", ", "\n") for name in names}
        draw_estimates(axes, points, context.styles, labels)
        axes.set_ylim(0, 1.04)
        y = "share free of hallucination" if axes is measured_axes else ""
        label_axes(axes, x="", y=y, title=title)
    legend_below(figure, row_legend(context.rows, context.styles, line_width=0, marker_size=6))
    return figure


def shared_settings(context: SectionContext[Options]) -> Suite:
    """Return the generation settings, which must be the same for all models and judges.

    Raises:
        UserError: A result is missing, or the settings differ.
    """
    suite: Suite = shared_suite(
        [
            context.results.judgment(context.section.suites[0], judge, row.run, seed)
            for judge in context.section.judges
            for row in context.rows
            for seed in context.seeds
        ]
    )
    return suite


def judged_view(context: SectionContext[Options], judge: str) -> SectionContext[Options]:
    """Return the section with the results of a judge in place of the suite's."""
    return context.replace(suites=[judged_suite(context.section.suites[0], judge)])


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
    cell = mean_cell(CellKey(run, name), seeds, _DECIMALS, PublishedValues(None))
    if cell.value is not None and cell.n == 1:
        (judged,) = (result for result, value in by_seed if value is not None)
        answers = int(require_metric(judged, set_metric("judged", name)))
        low, high = wilson_interval(round(cell.value * answers), answers)
        cell = cell.model_copy(update={"ci_low": low, "ci_high": high})
    return cell
