"""Many-shot accuracy as pictures, one panel a set: by demonstrations, and by their order."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from difftransformer.errors import UserError
from difftransformer.measurements.many_shot.settings import Options, Suite, accuracy_metric
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import defined
from difftransformer.reporting.curves import draw, over_seeds
from difftransformer.reporting.drawing import FAINT, SOFT, Look, legend_below, printable, tidy
from difftransformer.reporting.panels import panels, published_curve
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 34
_GAP = 0.9
_CHARACTERS = 11  # of a title in an inch


class Strip(NamedTuple):
    """Accuracies of one model over orders, and whether they are published."""

    run: str
    values: Sequence[float]
    published: bool


def figure(view: View[Options]) -> "Figure":
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


def _curves(view: View[Options]) -> "Figure":
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
    legend_below(figure, grid[0][0], ncols=6)
    return figure


def _measured_panel(axes: "Axes", view: View[Options], look: dict[str, Look]) -> None:
    numbers = measured(view.suite, view.evaluated())
    late = plateau(numbers)
    axes.axvspan(late[0], late[-1], color=FAINT, alpha=0.35, lw=0)
    axes.axhline(_chance(view), color=SOFT, lw=0.9, ls=(0, (4, 3)))
    for row in view.rows:
        found = view.evaluated(row)
        curve = over_seeds(numbers, [[accuracy(one, n) for n in numbers] for one in found])
        draw(axes, curve, look[row.run], printable(row.label), marks=3.8)
    tidy(axes, x="demonstrations", y="accuracy, %")
    axes.set_title(printable(titled(view).title, _WIDTH), fontsize=8.5, pad=6)


def _published_panel(axes: "Axes", view: View[Options], look: dict[str, Look]) -> None:
    for row in view.rows:
        points = dict(_published(view, row.run, f"{view.suite.task}_n"))
        published_curve(axes, points, look[row.run], lw=1.2, ms=3.2)
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


def _spread(view: View[Options]) -> "Figure":
    """Draw accuracy by order; every training seed is a strip of its own."""
    views = view.sections
    breadth = max(3.0, 12.6 / len(views))
    figure, (places,) = panels(1, len(views), (breadth * len(views), 3.8), sharey=True)
    for axes, one in zip(places, views, strict=True):
        _spread_panel(axes, one, view.look, int(_CHARACTERS * breadth))
    for axes in places[1:]:
        axes.set_ylabel("")
    legend_below(figure, places[0])
    return figure


def _spread_panel(axes: "Axes", view: View[Options], look: dict[str, Look], width: int) -> None:
    suite, place = view.suite, 0.0
    labels = {row.run: row.label for row in view.rows}
    ours = [
        Strip(row.run, by_order(suite, one), published=False)
        for row in view.rows
        for one in view.evaluated(row)
    ]
    theirs = [
        Strip(row.run, [value for _, value in found], published=True)
        for row in view.rows
        if (found := _published(view, row.run, f"{orders_name(suite)}_o"))
    ]
    for strips in (ours, theirs):
        for before, strip in zip([None, *strips], strips, strict=False):
            place += 1.0 if before is None or before.run == strip.run else 1.0 + _GAP
            first = not strip.published and (before is None or before.run != strip.run)
            _strip(axes, place, strip, look[strip.run], labels[strip.run] if first else "")
        if strips is ours:  # the published sets may have other classes
            axes.hlines(
                _chance(view), 0.5, place + 0.5, color=SOFT, lw=0.9, ls=(0, (4, 3)),
                label="guessing on our items",
            )  # fmt: skip
        place += 2 * _GAP
    axes.set_xticks([])
    axes.set_ylim(0, 108)
    tidy(axes, x="training seeds, then published", y="accuracy, %")
    axes.set_title(printable(titled(view).title, width), fontsize=8.5, pad=6)
    axes.grid(visible=False, axis="x")


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
