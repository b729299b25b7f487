"""Many-shot accuracy as pictures, one panel a set: by demonstrations, and by their order."""

from collections.abc import Sequence
from statistics import fmean

from difftransformer.errors import UserError
from difftransformer.evaluations.many_shot.settings import Options, Suite, accuracy_metric
from difftransformer.provenance.result import Result
from difftransformer.reporting.charts import (
    PUBLISHED,
    Point,
    estimate,
    estimates,
    lines,
    over_seeds,
)
from difftransformer.reporting.collect import defined
from difftransformer.reporting.drawing import (
    FAINT,
    SOFT,
    Axes,
    Figure,
    Look,
    legend_below,
    printable,
    sign,
    tidy,
)
from difftransformer.reporting.panels import panels, row_signs
from difftransformer.reporting.view import View

_WIDTH = 34
_GUESS = Look(SOFT, (4, 3), "")
_CHARACTERS = 11  # of a title in an inch


def figure(view: View[Options]) -> Figure:
    """Draw a panel for each section of the artifact, as its first section asks for."""
    return _spread(view) if view.options.by == "order" else _curves(view)


def measured(suite: Suite, asked: Sequence[Result]) -> list[int]:
    """Numbers of demonstrations that all results were measured at, ascending.

    Raises:
        UserError: Results were measured at different numbers.
    """
    found = [
        sorted(number for number in suite.demonstrations if accuracy_metric(number) in one.metrics)
        for one in asked
    ]
    for one, numbers in zip(asked, found, strict=True):
        if numbers != found[0]:
            raise UserError(
                f"{one.job_id} was measured at {numbers} demonstrations, {asked[0].job_id} at "
                f"{found[0]}: rerun the older one"
            )
    return found[0]


def plateau(numbers: Sequence[int]) -> list[int]:
    """Numbers that are at least half of the largest: declared, not read off the curves."""
    return [number for number in numbers if 2 * number >= numbers[-1]]


def accuracy(result: Result, number: int, order: int | None = None) -> float:
    """Accuracy in % at a number of demonstrations, in one order or the mean over orders.

    Raises:
        UserError: it was not measured, or is undefined.
    """
    return 100 * defined(result, accuracy_metric(number, order))


def by_order(suite: Suite, result: Result) -> list[float]:
    """Accuracy in % of each order at the largest number of demonstrations.

    Raises:
        UserError: There are fewer than two orders, or one has no accuracy.
    """
    if suite.order_seeds < 2:
        raise UserError(f"suite '{result.suite}' has one order: a spread needs order_seeds of 2")
    number = measured(suite, [result])[-1]
    return [accuracy(result, number, order) for order in range(suite.order_seeds)]


def orders_name(suite: Suite) -> str:
    """Begin columns of a spread: the set and how its demonstrations are ordered."""
    return f"{suite.task}_{suite.order}"


def titled(view: View[Options]) -> View[Options]:
    """Return a section whose title says if another set stands in."""
    suite = view.suite
    items = f"generated items, {suite.classes} classes" if suite.generated else None
    return view.standing_in(items)


def _curves(view: View[Options]) -> Figure:
    """Draw one column a section: ours, and what is published of the same set."""
    views, rows = view.sections, 1 if view.artifact.paper is None else 2
    figure, grid = panels(rows, len(views), (3.1 * len(views), 3.1 * rows), sharey="row")
    for column, one in enumerate(views):
        _measured_panel(grid[0][column], one, view.look)
        if view.artifact.paper is not None:
            _published_panel(grid[1][column], one, view.look)
        for axes in grid[:, column]:
            axes.set_ylim(0, 102)
            if column:
                axes.set_ylabel("")
    legend_below(figure, row_signs(view.rows, view.look, mark=3.8), ncols=6)
    return figure


def _measured_panel(axes: Axes, view: View[Options], look: dict[str, Look]) -> None:
    numbers = measured(view.suite, view.evaluated())
    late = plateau(numbers)
    axes.axvspan(late[0], late[-1], color=FAINT, alpha=0.35, lw=0)
    axes.axhline(_chance(view), color=SOFT, lw=0.9, ls=(0, _GUESS.dash))
    for row in view.rows:
        found = [[accuracy(one, n) for n in numbers] for one in view.evaluated(row)]
        lines(axes, over_seeds(row.run, numbers, found), look, marks=3.8)
    tidy(axes, x="demonstrations", y="accuracy, %")
    axes.set_title(printable(titled(view).title, _WIDTH), fontsize=8.5, pad=6)


def _published_panel(axes: Axes, view: View[Options], look: dict[str, Look]) -> None:
    for row in view.rows:
        points = _published(view, row.run, f"{view.suite.task}_n")
        lines(axes, [Point(row.run, x, y) for x, y in points], look, **PUBLISHED)
    tidy(axes, x="demonstrations", y="accuracy, %, published")
    axes.set_title(printable(f"{view.title}, published", _WIDTH), fontsize=8.5, pad=6)


def _published(view: View[Options], run: str, start: str) -> list[tuple[float, float]]:
    """Published values of a row, by the number behind `start` in the names of their columns."""
    rows = {} if view.artifact.paper is None else view.artifact.paper.rows
    values = rows[run].values if run in rows else {}
    return sorted(
        (int(name.removeprefix(start)), float(value))
        for name, value in values.items()
        if value is not None and name.startswith(start) and name.removeprefix(start).isdigit()
    )


def _chance(view: View[Options]) -> float:
    return 100 * defined(view.evaluated()[0], "chance")


def _spread(view: View[Options]) -> Figure:
    """Draw accuracy by order; every training seed is a strip of its own."""
    views = view.sections
    breadth = max(3.0, 12.6 / len(views))
    figure, (places,) = panels(1, len(views), (breadth * len(views), 3.8), sharey=True)
    for axes, one in zip(places, views, strict=True):
        _spread_panel(axes, one, view.look, int(_CHARACTERS * breadth))
    for axes in places[1:]:
        axes.set_ylabel("")
    signs = row_signs(view.rows, view.look, line=0, mark=4)
    legend_below(figure, [*signs, sign("guessing on our items", _GUESS, line=0.9, mark=0)])
    return figure


def _spread_panel(axes: Axes, view: View[Options], look: dict[str, Look], width: int) -> None:
    """Draw orders as dots around the bar from the worst to the best, and how far that is."""
    ours = {
        f"{row.run}/{one.seed}": (row.run, by_order(view.suite, one))
        for row in view.rows
        for one in view.evaluated(row)
    }
    theirs = {
        f"{row.run}/published": (row.run, [value for _, value in found])
        for row in view.rows
        if (found := _published(view, row.run, f"{orders_name(view.suite)}_o"))
    }
    strips = ours | theirs
    for some, hollow in ((ours, False), (theirs, True)):
        shown = [
            one
            for place, (run, values) in some.items()
            for one in estimate(place, run, fmean(values), (min(values), max(values)), values)
        ]
        places = dict.fromkeys(strips, "")
        estimates(axes, shown, look, places, dodge=False, hollow=hollow, marks=4)
    for place, (run, values) in enumerate(strips.values()):
        margin, best = f"{max(values) - min(values):.0f}", max(values)
        axes.text(place, best + 1.5, margin, ha="center", fontsize=7, color=look[run].color)
    axes.hlines(_chance(view), -0.5, len(ours) - 0.5, color=SOFT, lw=0.9, ls=(0, _GUESS.dash))
    axes.set_ylim(0, 108)
    tidy(axes, x="training seeds, then published", y="accuracy, %")
    axes.set_title(printable(titled(view).title, width), fontsize=8.5, pad=6)
