"""Figures of many-shot accuracy, one panel per labeled set: by demonstrations or their order."""

from collections.abc import Sequence
from statistics import fmean

from difftransformer.errors import UserError
from difftransformer.evaluations.many_shot.settings import Options, Suite, accuracy_metric
from difftransformer.provenance.result import Result
from difftransformer.reporting.charts import (
    PUBLISHED_STYLE,
    Point,
    draw_estimates,
    draw_lines,
    make_estimates,
    seed_points,
)
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.drawing import (
    FAINT,
    SOFT,
    Axes,
    Figure,
    RowStyle,
    escape_label,
    label_axes,
    legend_below,
    legend_handle,
)
from difftransformer.reporting.panels import row_legend, subplot_grid
from difftransformer.reporting.section_context import SectionContext

_WIDTH = 34
_GUESS = RowStyle(SOFT, (4, 3), "")
_CHARACTERS_PER_INCH = 11  # of a title


def figure(context: SectionContext[Options]) -> Figure:
    """Draw accuracy by number of demonstrations, or by order, one panel per labeled set."""
    return _spread(context) if context.options.by == "order" else _curves(context)


def measured_shots(suite: Suite, results: Sequence[Result]) -> list[int]:
    """Return the numbers of demonstrations that all results were measured at, ascending.

    Raises:
        UserError: Results were measured at different numbers.
    """
    shots = [
        sorted(
            number for number in suite.demonstrations if accuracy_metric(number) in result.metrics
        )
        for result in results
    ]
    for result, numbers in zip(results, shots, strict=True):
        if numbers != shots[0]:
            raise UserError(
                f"{result.job_id} was measured at {numbers} demonstrations, {results[0].job_id} at "
                f"{shots[0]}: rerun the older one"
            )
    return shots[0]


def plateau(numbers: Sequence[int]) -> list[int]:
    """Return the numbers of demonstrations that are at least half of the largest one.

    ``numbers`` are ascending. The rule was set before the results.
    """
    return [number for number in numbers if 2 * number >= numbers[-1]]


def accuracy(result: Result, number: int, order: int | None = None) -> float:
    """Return a result's accuracy in % at a number of demonstrations, for one order or the mean.

    Raises:
        UserError: The accuracy was not measured, or is undefined.
    """
    return 100 * require_metric(result, accuracy_metric(number, order))


def accuracy_by_order(suite: Suite, result: Result) -> list[float]:
    """Return a result's accuracy in % for each order of the largest number of demonstrations.

    Raises:
        UserError: There are fewer than two orders, or an order has no accuracy.
    """
    if suite.order_seeds < 2:
        raise UserError(f"suite '{result.suite}' has one order: a spread needs order_seeds of 2")
    number = measured_shots(suite, [result])[-1]
    return [accuracy(result, number, order) for order in range(suite.order_seeds)]


def order_column(suite: Suite) -> str:
    """Return the prefix of column ids for a spread over orders: {set}_{kind of order}."""
    return f"{suite.task}_{suite.order}"


def with_proxy_title(context: SectionContext[Options]) -> SectionContext[Options]:
    """Return the section's context, with a title that marks generated items as a proxy."""
    suite = context.suite
    items = f"generated items, {suite.classes} classes" if suite.generated else None
    return context.as_proxy(items)


def _curves(context: SectionContext[Options]) -> Figure:
    """Draw a column per section: our accuracies above the published ones of the same set."""
    contexts, rows = context.sibling_contexts, 1 if context.artifact.paper is None else 2
    figure, grid = subplot_grid(
        rows, len(contexts), (3.1 * len(contexts), 3.1 * rows), sharey="row"
    )
    for column, section in enumerate(contexts):
        _measured_panel(grid[0][column], section, context.styles)
        if context.artifact.paper is not None:
            _published_panel(grid[1][column], section, context.styles)
        for axes in grid[:, column]:
            axes.set_ylim(0, 102)
            if column:
                axes.set_ylabel("")
    legend_below(figure, row_legend(context.rows, context.styles, marker_size=3.8), ncols=6)
    return figure


def _measured_panel(
    axes: Axes, context: SectionContext[Options], styles: dict[str, RowStyle]
) -> None:
    numbers = measured_shots(context.suite, context.eval_results())
    late = plateau(numbers)
    axes.axvspan(late[0], late[-1], color=FAINT, alpha=0.35, lw=0)
    axes.axhline(_chance(context), color=SOFT, lw=0.9, ls=(0, _GUESS.dash))
    for row in context.rows:
        values = [[accuracy(result, n) for n in numbers] for result in context.eval_results(row)]
        draw_lines(axes, seed_points(row.run, numbers, values), styles, marker_size=3.8)
    label_axes(axes, x="demonstrations", y="accuracy, %")
    axes.set_title(escape_label(with_proxy_title(context).title, _WIDTH), fontsize=8.5, pad=6)


def _published_panel(
    axes: Axes, context: SectionContext[Options], styles: dict[str, RowStyle]
) -> None:
    for row in context.rows:
        points = _published(context, row.run, f"{context.suite.task}_n")
        draw_lines(axes, [Point(row.run, x, y) for x, y in points], styles, **PUBLISHED_STYLE)
    label_axes(axes, x="demonstrations", y="accuracy, %, published")
    axes.set_title(escape_label(f"{context.title}, published", _WIDTH), fontsize=8.5, pad=6)


def _published(
    context: SectionContext[Options], run: str, prefix: str
) -> list[tuple[float, float]]:
    """Return published values of a row by the number after a prefix of the column."""
    rows = {} if context.artifact.paper is None else context.artifact.paper.rows
    values = rows[run].values if run in rows else {}
    return sorted(
        (int(name.removeprefix(prefix)), float(value))
        for name, value in values.items()
        if value is not None and name.startswith(prefix) and name.removeprefix(prefix).isdigit()
    )


def _chance(context: SectionContext[Options]) -> float:
    return 100 * require_metric(context.eval_results()[0], "chance")


def _spread(context: SectionContext[Options]) -> Figure:
    """Draw accuracy by order, a strip per training seed."""
    contexts = context.sibling_contexts
    width = max(3.0, 12.6 / len(contexts))
    figure, (panel_axes,) = subplot_grid(
        1, len(contexts), (width * len(contexts), 3.8), sharey=True
    )
    for axes, section in zip(panel_axes, contexts, strict=True):
        _spread_panel(axes, section, context.styles, int(_CHARACTERS_PER_INCH * width))
    for axes in panel_axes[1:]:
        axes.set_ylabel("")
    handles = row_legend(context.rows, context.styles, line_width=0, marker_size=4)
    legend_below(
        figure,
        [*handles, legend_handle("guessing on our items", _GUESS, line_width=0.9, marker_size=0)],
    )
    return figure


def _spread_panel(
    axes: Axes, context: SectionContext[Options], styles: dict[str, RowStyle], width: int
) -> None:
    """Draw orders as dots on a bar from worst to best, and write the difference above."""
    ours = {
        f"{row.run}/{result.seed}": (row.run, accuracy_by_order(context.suite, result))
        for row in context.rows
        for result in context.eval_results(row)
    }
    published_strips = {
        f"{row.run}/published": (row.run, [value for _, value in published])
        for row in context.rows
        if (published := _published(context, row.run, f"{order_column(context.suite)}_o"))
    }
    strips = ours | published_strips
    for group, hollow in ((ours, False), (published_strips, True)):
        drawn = [
            mark
            for strip, (run, values) in group.items()
            for mark in make_estimates(
                strip, run, fmean(values), (min(values), max(values)), values
            )
        ]
        labels = dict.fromkeys(strips, "")
        draw_estimates(axes, drawn, styles, labels, dodge=False, hollow=hollow, marker_size=4)
    for x, (run, values) in enumerate(strips.values()):
        spread, best = f"{max(values) - min(values):.0f}", max(values)
        axes.text(x, best + 1.5, spread, ha="center", fontsize=7, color=styles[run].color)
    axes.hlines(_chance(context), -0.5, len(ours) - 0.5, color=SOFT, lw=0.9, ls=(0, _GUESS.dash))
    axes.set_ylim(0, 108)
    label_axes(axes, x="training seeds, then published", y="accuracy, %")
    axes.set_title(escape_label(with_proxy_title(context).title, width), fontsize=8.5, pad=6)
