"""Intervals, and forest plots: a line for each row, with its seeds, their mean and interval."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from difftransformer.reporting.document import Cell
from difftransformer.reporting.drawing import SOFT, Look, printable, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_NORMAL = 1.96  # standard errors to either side of an interval of 95%


def interval(cell: Cell, error: float | None = None) -> tuple[float, float] | None:
    """Ends of a cell's own interval, else of one that a standard error makes where it is known."""
    if cell.ci_low is not None and cell.ci_high is not None:
        return cell.ci_low, cell.ci_high
    if cell.value is None or error is None:
        return None
    return cell.value - _NORMAL * error, cell.value + _NORMAL * error


def estimate(axes: "Axes", place: float, cell: Cell, look: Look, *, hollow: bool = False) -> None:
    """Draw one line: seeds below, mean and interval, the published value above."""
    seeds = [seed.value for seed in cell.seeds if seed.value is not None]
    if len(seeds) > 1:
        axes.plot(seeds, [place + 0.22] * len(seeds), ".", color=look.colour, ms=4, alpha=0.6)
    if (ends := interval(cell)) is not None:
        axes.plot(ends, [place, place], color=look.colour, lw=1.8)
    if cell.value is not None:
        fill = "white" if hollow else look.colour
        axes.plot([cell.value], [place], look.marker, color=look.colour, mfc=fill, ms=6)
    if cell.paper_value is not None:
        axes.plot([cell.paper_value], [place - 0.22], "x", color=SOFT, ms=5, mew=1.2)


def name_lines(axes: "Axes", labels: Sequence[str], *, x: str, title: str) -> None:
    """Name the lines from top to bottom, and the axes."""
    axes.set_yticks(range(len(labels)), [printable(label, 28) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    tidy(axes, x=x, y="", title=title)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def seed_signs(seeds: Sequence[int]) -> list["Line2D"]:
    """Signs of a legend: what a marker and the dots below it are."""
    if len(seeds) == 1:
        return [sign("o", "one seed")]
    return [sign("o", "mean, 95% interval", line=1.8), sign(".", "one seed")]


def sign(marker: str, label: str, *, line: float = 0, hollow: bool = False) -> "Line2D":
    """Make one sign of a legend, in no row's colour."""
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color=SOFT, marker=marker, ls="-" if line else "", lw=line, ms=5, label=label,
        mfc="white" if hollow else SOFT,
    )  # fmt: skip
