"""Curves over seeds or rounds, as artists of a panel."""

from statistics import fmean, median

import pytest
from matplotlib.figure import Figure

from difftransformer.reporting.curves import Curve, draw, over_seeds
from difftransformer.reporting.drawing import Look

LOOK = Look("#123456", (0, (5, 1.5)), "s")


def band(figure: Figure) -> list[tuple[float, float]]:
    """Lowest and highest point of the band at each x."""
    (found,) = figure.axes[0].collections
    (path,) = found.get_paths()
    at: dict[float, list[float]] = {}
    for x, y in path.vertices:
        at.setdefault(float(x), []).append(float(y))
    return [(min(ys), max(ys)) for _, ys in sorted(at.items())]


def test_a_line_is_the_mean_of_seeds_within_their_range() -> None:
    figure = Figure()
    curve = over_seeds([1, 2, 4], [[1.0, 5.0, 3.0], [2.0, 4.0, 9.0], [6.0, 0.0, 3.0]])
    draw(figure.add_subplot(), curve, LOOK, "Ours", marks=4)
    line, marks = figure.axes[0].lines
    assert curve.y == [3.0, 3.0, 5.0]
    assert list(line.get_ydata()) == pytest.approx(curve.y) and list(line.get_xdata()) == [1, 2, 4]
    assert (line.get_color(), line.get_linewidth(), line.get_label()) == ("#123456", 1.6, "Ours")
    assert band(figure) == [(1.0, 6.0), (0.0, 5.0), (3.0, 9.0)]
    assert figure.axes[0].collections[0].get_alpha() == 0.15
    assert (marks.get_marker(), list(marks.get_ydata())) == ("s", curve.y)
    assert figure.axes[0].get_legend() is None


def test_centre_and_band_are_of_ones_own() -> None:
    figure = Figure()
    curve = Curve([1, 2], [[1, 2, 9], [4, 5, 6]], median, lambda v: (fmean(v) - 1, fmean(v) + 1))
    draw(figure.add_subplot(), curve, LOOK, "")
    assert list(figure.axes[0].lines[0].get_ydata()) == curve.y == [2, 5]
    assert band(figure) == [(3, 5), (4, 6)]


def test_one_seed_and_no_value_at_all_have_no_band() -> None:
    for curve in (over_seeds([1, 2], [[3.0, 4.0]]), Curve([], []), Curve([1], [[1, 2]], band=None)):
        figure = Figure()
        draw(figure.add_subplot(), curve, LOOK, "Ours")
        (line,) = figure.axes[0].lines
        assert line.get_label() == "Ours" and list(line.get_ydata()) == curve.y
        assert all(not len(p.vertices) for c in figure.axes[0].collections for p in c.get_paths())


def test_means_are_never_taken_of_logarithms() -> None:
    axes = Figure().add_subplot()
    axes.set_yscale("log")
    with pytest.raises(AssertionError, match="means of logarithms"):
        draw(axes, over_seeds([1], [[1.0]]), LOOK, "Ours")
