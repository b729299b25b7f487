"""Curves over seeds or rounds: a line through their centre, and a band around it."""

from collections.abc import Callable, Collection, Sequence
from math import nan
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from difftransformer.errors import DataError
from difftransformer.reporting.drawing import Look
from difftransformer.reporting.histories import Histories, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def span(values: Sequence[float]) -> tuple[float, float]:
    """From the lowest to the highest."""
    return min(values), max(values)


class Curve(NamedTuple):
    """Values by x, such as one a seed, and how a line and its band are made of them."""

    x: Sequence[float]
    values: Sequence[Sequence[float]]
    centre: Callable[[Sequence[float]], float] = fmean
    band: Callable[[Sequence[float]], tuple[float, float]] | None = span

    @property
    def y(self) -> list[float]:
        """Centre at each x."""
        return [self.centre(values) for values in self.values]


def over_seeds(x: Sequence[float], by_seed: Sequence[Sequence[float]]) -> Curve:
    """Mean and range of several seeds that were measured at the same places."""
    return Curve(x, list(zip(*by_seed, strict=True)))


def by_tokens(histories: Histories, run: str, seeds: Sequence[int], column: str) -> Curve:
    """One column of a run's histories by training tokens.

    Raises:
        UserError: a history is missing, lacks the column, or its seeds were measured elsewhere.
    """
    found = same_steps(run, [histories.series(run, seed, column) for seed in seeds])
    return over_seeds(found[0].tokens, [series.values for series in found])


def paired_by_tokens(
    histories: Histories, run: str, against: str, seeds: Sequence[int], column: str
) -> Curve:
    """Difference of two runs by training tokens, seed by seed.

    Raises:
        UserError: as for `by_tokens`.
    """
    both = f"{run} and {against}"
    pairs = [
        same_steps(both, [histories.series(one, seed, column) for one in (run, against)])
        for seed in seeds
    ]
    differences = [
        [a - b for a, b in zip(ours.values, theirs.values, strict=True)] for ours, theirs in pairs
    ]
    return over_seeds(pairs[0][0].tokens, differences)


def same_steps(what: str, series: Sequence[Series]) -> Sequence[Series]:
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


def mark(
    axes: "Axes", curve: Curve, look: Look, partial: Collection[float], *, size: float
) -> None:
    """Mark the points of a curve, hollow where the mean leaves out seeds that diverged."""
    for x, y in zip(curve.x, curve.y, strict=True):
        fill, above = ("white", 3) if x in partial else (look.colour, 2)
        axes.plot([x], [y], look.marker, color=look.colour, mfc=fill, ms=size, zorder=above)


def draw(axes: "Axes", curve: Curve, look: Look, label: str, *, marks: float | None = None) -> None:
    """Draw a line with its band, and marks of a size; before ``axes`` have a logarithmic y."""
    import seaborn

    assert axes.get_yscale() == "linear", "seaborn would take means of logarithms"
    points = [(x, one) for x, values in zip(curve.x, curve.values, strict=True) for one in values]
    points = points or [(nan, nan)]  # of nothing seaborn would not even make the legend's line
    seaborn.lineplot(
        x=[x for x, _ in points],
        y=[y for _, y in points],
        estimator=curve.centre,
        errorbar=curve.band,
        err_kws={"alpha": 0.15, "lw": 0},
        color=look.colour,
        linestyle=look.dash,
        lw=1.6,
        label=label,
        legend=False,
        ax=axes,
    )
    if marks is not None:
        axes.plot(curve.x, curve.y, look.marker, color=look.colour, ms=marks, mew=0)
