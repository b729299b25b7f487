"""Charts by seaborn, of points and estimates: lines over x, and estimates by place of an axis."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, NamedTuple

from difftransformer.errors import DataError
from difftransformer.reporting.document import Cell, Section
from difftransformer.reporting.drawing import FAINT, Axes, Line2D, RowStyle, legend_handle
from difftransformer.reporting.histories import Histories, Series

HOLLOW_STYLE: dict[str, Any] = {"mfc": "white", "mew": 1.2}
"""Style of marks of what is published, or of fewer seeds."""
PUBLISHED_STYLE: dict[str, Any] = HOLLOW_STYLE | {"lw": 1.2, "marker_size": 4.5, "errorbar": None}
"""Style of published curves."""
MIN_MAX_BAND = ("pi", 100)
"""The band from the lowest to the highest, in the words of seaborn."""
_NORMAL = 1.96  # standard errors to either side of an interval of 95%
_MANY = 12  # dots at one place, which would cover the mark and its interval
_SHARED = 0.8  # of a place on an axis, by the rows that are beside each other there


class Point(NamedTuple):
    """What a row has at x, with one seed."""

    run: str
    x: float
    y: float
    seed: int = 0


class Estimate(NamedTuple):
    """A number of a row at a place of an axis: its value, the ends of its interval, or a seed's."""

    place: str
    run: str
    kind: Literal["value", "low", "high", "seed", "published"]
    number: float


def seed_points(run: str, x: Sequence[float], by_seed: Iterable[Sequence[float]]) -> list[Point]:
    """Points of several seeds that were measured at the same places."""
    return [
        Point(run, at, y, seed)
        for seed, values in enumerate(by_seed)
        for at, y in zip(x, values, strict=True)
    ]


def token_points(
    histories: Histories, run: str, seeds: Sequence[int], column: str, baseline: str | None = None
) -> list[Point]:
    """One column of a run's histories by training tokens, or its difference to another run's.

    Raises:
        UserError: a history is missing, lacks the column, or its seeds were measured elsewhere.
    """
    both = [run] if baseline is None else [run, baseline]
    found = [[histories.series(one, seed, column) for one in both] for seed in seeds]
    tokens = require_same_steps(" and ".join(both), [one for pair in found for one in pair])[
        0
    ].tokens
    values = [zip(*(one.values for one in pair), strict=True) for pair in found]
    differences = [[ours - sum(theirs) for ours, *theirs in pairs] for pairs in values]
    return seed_points(run, tokens, differences)


def require_same_steps(what: str, series: Sequence[Series]) -> Sequence[Series]:
    """Check that all series were measured at the same tokens.

    Raises:
        DataError: they were not, so no mean exists.
    """
    if any(one.tokens != series[0].tokens for one in series):
        raise DataError(
            f"histories of {what} were measured at different tokens: train them with equal steps, "
            "batch_size, seq_len and validate_every"
        )
    return series


def draw_lines(
    axes: Axes, points: Iterable[Point], look: Mapping[str, RowStyle], *,
    marker_size: float | None = None, **style: Any,
) -> None:  # fmt: skip
    """Draw a line for each row: its mean over seeds at each x, in a band of their range.

    Args:
        axes: Where; before they have a logarithmic y.
        points: What is drawn.
        look: Look of each row.
        marker_size: Size of markers at each x; None: there are none.
        style: Options of `seaborn.lineplot` and of its lines.
    """
    import pandas as pd
    import seaborn

    assert axes.get_yscale() == "linear", "seaborn would take means of logarithms"
    frame = pd.DataFrame(points, columns=Point._fields)
    if frame.empty:
        return
    shown = {run: one for run, one in look.items() if run in set(frame["run"])}
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
        hue_order=list(shown),
        palette={run: one.color for run, one in shown.items()},
        dashes={run: one.dash for run, one in shown.items()},
        markers={run: one.marker for run, one in shown.items()} if marker_size else False,
        legend=False,
        ax=axes,
        **(usual | style),
    )


def mean_points(points: Iterable[Point]) -> list[Point]:
    """Mean over seeds of each row at each x."""
    found: dict[tuple[str, float], list[float]] = {}
    for one in points:
        found.setdefault((one.run, one.x), []).append(one.y)
    return [Point(run, x, fmean(values)) for (run, x), values in found.items()]


def draw_estimates(
    axes: Axes, found: Iterable[Estimate], look: Mapping[str, RowStyle],
    places: Mapping[str, str], *,
    along: Literal["x", "y"] = "x", dodge: bool = True, hollow: bool = False,
    marker_size: float = 6,
) -> None:  # fmt: skip
    """Draw estimates with their intervals, seeds as dots, and published values as hollow marks.

    Args:
        axes: Where.
        found: What is drawn.
        look: Look of each row.
        places: Places of the axis in their order, with their names.
        along: The axis of the places.
        dodge: Whether rows are beside each other at a place.
        hollow: Whether estimates and seeds are hollow.
        marker_size: Size of estimates; dots of seeds have half of it, many dots a quarter.
    """
    import numpy as np
    import pandas as pd
    import seaborn

    frame = pd.DataFrame(found, columns=Estimate._fields)
    runs = [run for run in look if run in set(frame["run"])]
    shared: dict[str, Any] = {
        along: "place", "x" if along == "y" else "y": "number", "order": list(places),
        "hue": "run", "hue_order": runs, "palette": {run: look[run].color for run in runs},
        "legend": False, "ax": axes,
    }  # fmt: skip
    beside = dodge and len(runs) > 1
    kinds = frame["kind"]
    before = len(axes.collections)
    most = frame[kinds == "seed"].groupby(["place", "run"]).size().max()
    dots = marker_size / (4 if most > _MANY else 2)
    seaborn.swarmplot(  # equal values are beside each other
        frame[kinds == "seed"], dodge=beside, size=dots, linewidth=0.13 * dots,
        edgecolor="white", zorder=2.2, warn_thresh=1, **shared,
    )  # fmt: skip
    for seeds in axes.collections[before:] if hollow else ():
        seeds.set(edgecolor=seeds.get_facecolor(), facecolor="white", linewidth=0.7)
    usual = {"mec": "white", "mew": 0.5, "ms": marker_size, "zorder": 3}
    for some, style in (  # what is published is larger, so that it is seen behind an equal value
        (kinds == "published", HOLLOW_STYLE | {"ms": marker_size + 2.5, "zorder": 2.5}),
        (
            kinds.isin(["value", "low", "high"]),
            HOLLOW_STYLE | {"ms": marker_size} if hollow else usual,
        ),
    ):
        seaborn.pointplot(
            frame[some], estimator=lambda one: one.iloc[0], errorbar=lambda one: one.iloc[1:],
            err_kws={"lw": 1.6, "zorder": 2}, linestyle="none",
            markers=[look[run].marker for run in runs],
            dodge=_SHARED * (1 - 1 / len(runs)) if beside else False, **style, **shared,
        )  # fmt: skip
    for line in list(axes.lines):  # seaborn has an interval for each row at every place
        if not np.isfinite(line.get_xydata()).all(axis=1).any():
            line.remove()
    axis = axes.xaxis if along == "x" else axes.yaxis
    axis.set_ticks(range(len(places)), list(places.values()))
    axis.set_tick_params(length=0)
    axis.grid(visible=False)
    ends = (-0.5, len(places) - 0.5)
    axes.set(**{f"{along}lim": ends if along == "x" else ends[::-1]})
    if beside:
        for edge in range(1, len(places)):
            axes.axvline(edge - 0.5, color=FAINT, lw=0.8)


def make_estimates(
    place: str, run: str, value: float | None, ends: tuple[float, float] | None = None,
    seeds: Sequence[float] = (), published: float | None = None,
) -> list[Estimate]:  # fmt: skip
    """Make the estimates of one place and row: the value, then its ends; one seed has no dot."""
    low, high = (None, None) if value is None or ends is None else ends
    kinds: dict[Literal["value", "low", "high", "published"], float | None] = {
        "value": value, "low": low, "high": high, "published": published,
    }  # fmt: skip
    found = [Estimate(place, run, kind, one) for kind, one in kinds.items() if one is not None]
    return found + [Estimate(place, run, "seed", one) for one in seeds if len(seeds) > 1]


def cell_estimates(
    cells: Iterable[Cell], *, by: Literal["column", "row"] = "column",
    ends: Callable[[Cell], tuple[float, float] | None] | None = None,
) -> list[Estimate]:  # fmt: skip
    """Estimates of cells, at the places of their columns or rows; ``ends`` of intervals, or own."""
    return [
        one
        for cell in cells
        for one in make_estimates(
            getattr(cell, by), cell.row, cell.value, (ends or cell_interval)(cell),
            list(cell.by_seed().values()), cell.paper_value,
        )
    ]  # fmt: skip


def select_cells(section: Section, columns: Iterable[str]) -> list[Cell]:
    """Cells of some columns, row by row."""
    names = list(columns)
    found = (section.cell(row.run, name) for row in section.rows for name in names)
    return [cell for cell in found if cell is not None]


def cell_interval(cell: Cell, error: float | None = None) -> tuple[float, float] | None:
    """Ends of a cell's own interval, else of one that a standard error makes where it is known."""
    if cell.ci_low is not None and cell.ci_high is not None:
        return cell.ci_low, cell.ci_high
    if cell.value is None or error is None:
        return None
    return cell.value - _NORMAL * error, cell.value + _NORMAL * error


def seed_legend(seeds: Sequence[int]) -> list[Line2D]:
    """Signs of a legend: what a marker and the dots beside it are."""
    if len(seeds) == 1:
        return [legend_handle("one seed")]
    return [
        legend_handle("mean, 95% interval", line_width=1.8),
        legend_handle("one seed", marker_size=2.5),
    ]
