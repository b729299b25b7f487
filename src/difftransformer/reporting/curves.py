"""Curves over seeds: mean, and the band from the lowest to the highest seed."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from difftransformer.errors import DataError
from difftransformer.reporting.drawing import Look
from difftransformer.reporting.histories import Histories, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Curve(NamedTuple):
    """Mean and range over seeds at each x."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def over_seeds(x: Sequence[float], by_seed: Sequence[Sequence[float]]) -> Curve:
    """Summarise values of several seeds that were measured at the same places."""
    columns = list(zip(*by_seed, strict=True))
    mean = [sum(column) / len(column) for column in columns]
    return Curve(list(x), mean, [min(c) for c in columns], [max(c) for c in columns])


def by_tokens(histories: Histories, run: str, seeds: Sequence[int], column: str) -> Curve:
    """One column of a run's histories by training tokens.

    Raises:
        UserError: a history is missing, lacks the column, or its seeds were measured elsewhere.
    """
    found = same_steps(run, {seed: histories.series(run, seed, column) for seed in seeds})
    return over_seeds(found[0].tokens, [series.values for series in found])


def paired_by_tokens(
    histories: Histories, run: str, against: str, seeds: Sequence[int], column: str
) -> Curve:
    """Difference of two runs by training tokens, seed by seed.

    Raises:
        UserError: as for `by_tokens`.
    """
    differences = []
    tokens: list[int] = []
    for seed in seeds:
        ours, theirs = same_steps(
            f"{run} and {against}",
            {
                seed: histories.series(run, seed, column),
                -1: histories.series(against, seed, column),
            },
        )
        tokens = ours.tokens
        differences.append([a - b for a, b in zip(ours.values, theirs.values, strict=True)])
    return over_seeds(tokens, differences)


def same_steps(what: str, series: Mapping[int, Series]) -> list[Series]:
    """Check that all series were measured at the same tokens.

    Raises:
        DataError: they were not, so no mean exists.
    """
    found = list(series.values())
    if any(one.tokens != found[0].tokens for one in found):
        raise DataError(
            f"histories of {what} were measured at different tokens: rerun them with one setting "
            "of validate_every"
        )
    return found


def mark(
    axes: "Axes", curve: Curve, look: Look, partial: Collection[float], *, size: float
) -> None:
    """Mark the points of a curve, hollow where the mean leaves out seeds that diverged."""
    for x, mean in zip(curve.x, curve.mean, strict=True):
        fill, above = ("white", 3) if x in partial else (look.colour, 2)
        axes.plot([x], [mean], look.marker, color=look.colour, mfc=fill, ms=size, zorder=above)


def draw(axes: "Axes", curve: Curve, look: Look, label: str) -> None:
    """Draw a mean line with its band."""
    axes.plot(curve.x, curve.mean, color=look.colour, linestyle=look.dash, lw=1.6, label=label)
    axes.fill_between(curve.x, curve.low, curve.high, color=look.colour, alpha=0.15, lw=0)
