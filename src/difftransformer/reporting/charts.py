"""Charts by seaborn: lines over x, and estimates with intervals by category of an axis."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, NamedTuple

from difftransformer.errors import DataError
from difftransformer.reporting.document import Cell, Section
from difftransformer.reporting.drawing import FAINT, Axes, Line2D, RowStyle, legend_handle
from difftransformer.reporting.histories import Histories, Series

HOLLOW_STYLE: dict[str, Any] = {"mfc": "white", "mew": 1.2}
"""Style of markers of published values, or of means over fewer seeds."""
PUBLISHED_STYLE: dict[str, Any] = HOLLOW_STYLE | {"lw": 1.2, "marker_size": 4.5, "errorbar": None}
"""Style of published curves."""
MIN_MAX_BAND = ("pi", 100)
"""Argument `errorbar` of seaborn for a band from the smallest to the largest value."""
_NORMAL = 1.96  # standard errors to either side of an interval of 95%
_MANY = 12  # dots in one category, which would cover the marker and its interval
_DODGE_WIDTH = 0.8  # part of a category that dodged rows share


class Point(NamedTuple):
    """A point of a line chart: value y of a row at x for one seed."""

    run: str
    x: float
    y: float
    seed: int = 0


class Estimate(NamedTuple):
    """A number of a row in a category of the axis: a mean, an end of its interval, or one seed."""

    category: str
    run: str
    kind: Literal["value", "low", "high", "seed", "published"]
    number: float


def seed_points(run: str, x: Sequence[float], by_seed: Iterable[Sequence[float]]) -> list[Point]:
    """Return the chart points of a run whose seeds were all measured at the same x values."""
    return [
        Point(run, x_value, y, seed)
        for seed, values in enumerate(by_seed)
        for x_value, y in zip(x, values, strict=True)
    ]


def token_points(
    histories: Histories, run: str, seeds: Sequence[int], column: str, baseline: str | None = None
) -> list[Point]:
    """Return chart points of a column of training histories over tokens.

    With a baseline, y is the difference to the baseline's column.

    Raises:
        UserError: A history is missing.
        DataError: A history lacks the column, or histories have different steps.
    """
    runs = [run] if baseline is None else [run, baseline]
    by_seed = [[histories.series(name, seed, column) for name in runs] for seed in seeds]
    first, *_ = require_same_steps(" and ".join(runs), [s for pair in by_seed for s in pair])
    values = [zip(*(series.values for series in pair), strict=True) for pair in by_seed]
    differences = [[ours - sum(baseline) for ours, *baseline in pairs] for pairs in values]
    return seed_points(run, first.tokens, differences)


def require_same_steps(runs: str, series: Sequence[Series]) -> Sequence[Series]:
    """Return ``series`` unchanged after checking that all were measured at the same tokens.

    Raises:
        DataError: The series were measured at different tokens.
    """
    if any(other.tokens != series[0].tokens for other in series):
        raise DataError(
            f"histories of {runs} were measured at different tokens; train them with equal steps, "
            "batch_size, seq_len and validate_every"
        )
    return series


def draw_lines(
    axes: Axes, points: Iterable[Point], styles: Mapping[str, RowStyle], *,
    marker_size: float | None = None, **style: Any,
) -> None:  # fmt: skip
    """Draw a line per row: the mean over seeds at each x, in a band from min to max.

    Args:
        axes: Axes to draw on; a logarithmic y scale must be set after the call.
        points: Chart points of all rows.
        styles: Style of each row.
        marker_size: Size of markers at each x; None: no markers.
        style: Options of `seaborn.lineplot` and of its lines.
    """
    import pandas as pd
    import seaborn

    assert axes.get_yscale() == "linear", "seaborn would take means of logarithms"
    frame = pd.DataFrame(points, columns=Point._fields)
    if frame.empty:
        return
    drawn = {run: styles[run] for run in styles if run in set(frame["run"])}
    usual: dict[str, Any] = {
        "errorbar": MIN_MAX_BAND,
        "lw": 1.6,
        "ms": marker_size,
        "mec": "auto",
        "mew": 0,
    }
    if style.get("err_style") != "bars":
        usual["err_kws"] = {"alpha": 0.15, "lw": 0}
    seaborn.lineplot(
        frame,
        x="x",
        y="y",
        hue="run",
        style="run",
        hue_order=list(drawn),
        palette={run: row.color for run, row in drawn.items()},
        dashes={run: row.dash for run, row in drawn.items()},
        markers={run: row.marker for run, row in drawn.items()} if marker_size else False,
        legend=False,
        ax=axes,
        **(usual | style),
    )


def mean_points(points: Iterable[Point]) -> list[Point]:
    """Return the mean over seeds of each row's points at each x."""
    values: dict[tuple[str, float], list[float]] = {}
    for point in points:
        values.setdefault((point.run, point.x), []).append(point.y)
    return [Point(run, x, fmean(y)) for (run, x), y in values.items()]


def draw_estimates(
    axes: Axes, estimates: Iterable[Estimate], styles: Mapping[str, RowStyle],
    categories: Mapping[str, str], *,
    along: Literal["x", "y"] = "x", dodge: bool = True, hollow: bool = False,
    marker_size: float = 6,
) -> None:  # fmt: skip
    """Draw estimates with intervals, seeds as dots, and published values as hollow markers.

    Args:
        axes: Axes to draw on.
        estimates: Estimates of all rows.
        styles: Style of each row.
        categories: Labels of the categories, in their order.
        along: Axis of the categories.
        dodge: Whether the rows of a category are drawn next to each other.
        hollow: Whether estimates and seeds are hollow.
        marker_size: Size of estimates; dots of seeds have half of it, many dots a quarter.
    """
    import numpy as np
    import pandas as pd
    import seaborn

    frame = pd.DataFrame(estimates, columns=Estimate._fields)
    runs = [run for run in styles if run in set(frame["run"])]
    shared: dict[str, Any] = {
        along: "category", "x" if along == "y" else "y": "number", "order": list(categories),
        "hue": "run", "hue_order": runs, "palette": {run: styles[run].color for run in runs},
        "legend": False, "ax": axes,
    }  # fmt: skip
    dodged = dodge and len(runs) > 1
    kinds = frame["kind"]
    before = len(axes.collections)
    most = frame[kinds == "seed"].groupby(["category", "run"]).size().max()
    dots = marker_size / (4 if most > _MANY else 2)
    seaborn.swarmplot(  # draws equal values next to each other
        frame[kinds == "seed"], dodge=dodged, size=dots, linewidth=0.13 * dots,
        edgecolor="white", zorder=2.2, warn_thresh=1, **shared,
    )  # fmt: skip
    for seeds in axes.collections[before:] if hollow else ():
        seeds.set(edgecolor=seeds.get_facecolor(), facecolor="white", linewidth=0.7)
    usual = {"mec": "white", "mew": 0.5, "ms": marker_size, "zorder": 3}
    for selected, style in (  # published markers are larger, to be seen behind equal values
        (kinds == "published", HOLLOW_STYLE | {"ms": marker_size + 2.5, "zorder": 2.5}),
        (
            kinds.isin(["value", "low", "high"]),
            HOLLOW_STYLE | {"ms": marker_size} if hollow else usual,
        ),
    ):
        seaborn.pointplot(
            frame[selected], estimator=lambda rows: rows.iloc[0],
            errorbar=lambda rows: rows.iloc[1:],
            err_kws={"lw": 1.6, "zorder": 2}, linestyle="none",
            markers=[styles[run].marker for run in runs],
            dodge=_DODGE_WIDTH * (1 - 1 / len(runs)) if dodged else False, **style, **shared,
        )  # fmt: skip
    for line in list(axes.lines):  # seaborn draws empty intervals, too
        if not np.isfinite(line.get_xydata()).all(axis=1).any():
            line.remove()
    axis = axes.xaxis if along == "x" else axes.yaxis
    axis.set_ticks(range(len(categories)), list(categories.values()))
    axis.set_tick_params(length=0)
    axis.grid(visible=False)
    ends = (-0.5, len(categories) - 0.5)
    axes.set(**{f"{along}lim": ends if along == "x" else ends[::-1]})
    if dodged:
        for edge in range(1, len(categories)):
            axes.axvline(edge - 0.5, color=FAINT, lw=0.8)


def make_estimates(
    category: str, run: str, value: float | None, ends: tuple[float, float] | None = None,
    seeds: Sequence[float] = (), published: float | None = None,
) -> list[Estimate]:  # fmt: skip
    """Return the estimates to draw for one row in one category.

    These are the value, its interval, and one dot per seed if there are two or more.
    """
    low, high = (None, None) if value is None or ends is None else ends
    kinds: dict[Literal["value", "low", "high", "published"], float | None] = {
        "value": value, "low": low, "high": high, "published": published,
    }  # fmt: skip
    dots = seeds if len(seeds) > 1 else []
    return [
        *(Estimate(category, run, kind, y) for kind, y in kinds.items() if y is not None),
        *(Estimate(category, run, "seed", y) for y in dots),
    ]


def cell_estimates(
    cells: Iterable[Cell], *, by: Literal["column", "row"] = "column",
    ends: Callable[[Cell], tuple[float, float] | None] | None = None,
) -> list[Estimate]:  # fmt: skip
    """Return the estimates to draw for table cells, with columns or rows as categories.

    ``ends`` replaces the cells' intervals.
    """
    return [
        estimate
        for cell in cells
        for estimate in make_estimates(
            getattr(cell, by), cell.row, cell.value, (ends or cell_interval)(cell),
            list(cell.by_seed().values()), cell.paper_value,
        )
    ]  # fmt: skip


def select_cells(section: Section, columns: Iterable[str]) -> list[Cell]:
    """Return the cells of a section in the given columns, row by row."""
    names = list(columns)
    cells = (section.cell(row.run, name) for row in section.rows for name in names)
    return [cell for cell in cells if cell is not None]


def cell_interval(cell: Cell, error: float | None = None) -> tuple[float, float] | None:
    """Return the ends of a cell's confidence interval, or None if they are unknown.

    Without an interval, the standard error ``error`` gives a normal 95% interval.
    """
    if cell.ci_low is not None and cell.ci_high is not None:
        return cell.ci_low, cell.ci_high
    if cell.value is None or error is None:
        return None
    return cell.value - _NORMAL * error, cell.value + _NORMAL * error


def seed_legend(seeds: Sequence[int]) -> list[Line2D]:
    """Return the legend entries for a mean with its interval and for a single seed.

    With one seed there is only the latter.
    """
    if len(seeds) == 1:
        return [legend_handle("one seed")]
    return [
        legend_handle("mean, 95% interval", line_width=1.8),
        legend_handle("one seed", marker_size=2.5),
    ]
