"""Lines over x and estimates by place, as artists of a panel."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pictures import hollow

from difftransformer.reporting.charts import (
    HOLLOW_STYLE,
    Point,
    draw_estimates,
    draw_lines,
    make_estimates,
    mean_points,
    seed_points,
)
from difftransformer.reporting.drawing import RowStyle

LOOK = {"ours": RowStyle("#123456", (5, 1.5), "s"), "theirs": RowStyle("#654321", (), "o")}


def band(axes: Axes) -> list[tuple[float, float]]:
    """Lowest and highest point of the band at each x."""
    (collection,) = axes.collections
    (path,) = collection.get_paths()
    at: dict[float, list[float]] = {}
    for x, y in path.vertices:
        at.setdefault(float(x), []).append(float(y))
    return [(min(ys), max(ys)) for _, ys in sorted(at.items())]


def test_a_line_is_the_mean_of_seeds_within_their_range() -> None:
    axes = Figure().add_subplot()
    points = seed_points("ours", [1, 2, 4], [[1.0, 5.0, 3.0], [2.0, 4.0, 9.0], [6.0, 0.0, 3.0]])
    draw_lines(axes, points, LOOK, marker_size=4)
    (line,) = axes.lines
    assert list(line.get_xdata()) == [1, 2, 4]
    assert list(line.get_ydata()) == pytest.approx([3.0, 3.0, 5.0])
    assert (line.get_color(), line.get_linewidth(), line.get_marker()) == ("#123456", 1.6, "s")
    assert band(axes) == [(1.0, 6.0), (0.0, 5.0), (3.0, 9.0)]
    assert axes.get_legend() is None
    assert [point.y for point in mean_points(points)] == [3.0, 3.0, 5.0]


def test_estimator_and_error_bar_can_be_chosen() -> None:
    axes = Figure().add_subplot()
    points = [Point("ours", x, y) for x, ys in {1: (1, 2, 9), 2: (4, 5, 6)}.items() for y in ys]
    draw_lines(
        axes, points, LOOK, estimator="median", errorbar=lambda v: (v.mean() - 1, v.mean() + 1)
    )
    assert list(axes.lines[0].get_ydata()) == [2, 5]
    assert band(axes) == [(3, 5), (4, 6)]


def test_a_single_seed_and_no_values_have_no_band() -> None:
    for points in (seed_points("ours", [1, 2], [[3.0, 4.0]]), []):
        axes = Figure().add_subplot()
        draw_lines(axes, points, LOOK)
        assert [list(line.get_ydata()) for line in axes.lines] == ([[3, 4]] if points else [])
        assert all(not len(p.vertices) for c in axes.collections for p in c.get_paths())


def test_means_are_never_taken_of_logarithms() -> None:
    axes = Figure().add_subplot()
    axes.set_yscale("log")
    with pytest.raises(AssertionError, match="means of logarithms"):
        draw_lines(axes, seed_points("ours", [1], [[1.0]]), LOOK)


@pytest.mark.parametrize("along", ["x", "y"])
def test_an_estimate_has_its_own_interval_its_seeds_and_the_published_value(along: str) -> None:
    axes = Figure().add_subplot()
    estimates = [
        *make_estimates("a", "ours", 2.0, (0.5, 5.0), [1.0, 3.0], published=4.0),
        *make_estimates("a", "theirs", 7.0, None, [7.0]),
        *make_estimates("b", "theirs", 8.0, (8.5, 9.0)),  # of a fit, not around its value
    ]
    draw_estimates(axes, estimates, LOOK, {"a": "A", "b": "B"}, along=along)  # type: ignore[arg-type]
    label_axis, value_axis = ("x", "y") if along == "x" else ("y", "x")

    def at(name: str) -> dict[str, list[tuple[float, ...]]]:
        return {
            look.color: [
                tuple(float(coordinate) for coordinate in data if np.isfinite(coordinate))
                for line in axes.lines
                if line.get_color() == look.color
                for data in [getattr(line, f"get_{name}data")()]
            ]
            for look in LOOK.values()
        }

    ours, theirs = at(value_axis).values()
    assert {(2.0,), (0.5, 5.0), (4.0,)} <= set(ours)
    assert {(7.0, 8.0), (8.5, 9.0)} <= set(theirs)
    dots = [
        float(offset[int(along == "x")]) for c in axes.collections for offset in c.get_offsets()
    ]
    assert sorted(dots) == [1.0, 3.0]  # a single seed has none beside its mark
    left, right = (next(data for data in value if data) for value in at(label_axis).values())
    assert left[0] < 0 < right[0], "rows are beside each other"
    assert [tick.get_text() for tick in getattr(axes, f"get_{label_axis}ticklabels")()] == [
        "A",
        "B",
    ]
    limits = getattr(axes, f"get_{label_axis}lim")()
    assert limits == ((-0.5, 1.5) if along == "x" else (1.5, -0.5)), "the first place is on top"


def test_a_number_of_fewer_seeds_is_hollow_in_its_own_color() -> None:
    axes = Figure().add_subplot()
    draw_lines(axes, [Point("ours", 3.0, 1.0)], LOOK, marker_size=4, lw=0, **HOLLOW_STYLE)
    draw_estimates(axes, make_estimates("a", "theirs", 1.0), LOOK, {"a": "A"}, hollow=True)
    assert hollow(axes) == [3.0, 0.0]
    assert [line.get_markeredgecolor() for line in axes.lines[:2]] == ["#123456", "#654321"]
