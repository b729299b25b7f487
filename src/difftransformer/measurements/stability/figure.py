"""Training stability as a picture: by learning rate, and the curves at the largest one."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.measurements.stability.settings import Options
from difftransformer.measurements.stability.spikes import (
    GRADIENT,
    KINDS,
    LOSS,
    ByRate,
    by_rate,
    kind_value,
)
from difftransformer.reporting.curves import Curve, draw, mark
from difftransformer.reporting.drawing import Look, legend_below, printable, tidy
from difftransformer.reporting.numbers import rate
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNITS = {
    "loss_spikes": "% of steps",
    "gradient_spikes": "% of steps",
    "diverged": "share of seeds",
    "final_loss": "nats per token",
}
_CURVES = {LOSS: "training loss, nats", GRADIENT: "gradient norm before clipping"}


def figure(view: View[Options]) -> "Figure":
    """Draw a sweep."""
    import matplotlib.pyplot as plt

    rates, look = view.rates, view.look
    found = {row.run: by_rate(view, row) for row in view.rows}
    figure = plt.figure(figsize=(12, 6.8), layout="constrained")
    parts = figure.subfigures(2, 1, squeeze=False)
    top, bottom = parts.ravel()
    for axes, (kind, title) in zip(top.subplots(1, len(KINDS)), KINDS.items(), strict=True):
        for row in view.rows:
            _by_rate(axes, kind, found[row.run], look[row.run], row.label)
        axes.set_xscale("log")
        axes.set_xticks(rates, [rate(value) for value in rates], rotation=45)
        axes.minorticks_off()
        tidy(axes, x="peak learning rate", y=_UNITS[kind], title=title)
    for axes, column in zip(bottom.subplots(1, len(_CURVES)), _CURVES, strict=True):
        for row in view.rows:
            _at_the_largest(axes, view, row, column)
        axes.set_yscale("log")
        tidy(axes, x="step", y=_CURVES[column], title=f"At {rate(rates[-1])}, one line a seed")
    legend_below(figure, top.axes[0])
    return figure


def _by_rate(axes: "Axes", kind: str, found: ByRate, look: Look, label: str) -> None:
    """Mean over the seeds that have a value, with their range; a share has none.

    A training that diverged has no loss at the end: the mean of the others has a hollow mark.
    """
    value = kind_value(kind)
    points = {
        learning_rate: [one for one in map(value, trained) if one is not None]
        for learning_rate, trained in found.items()
    }
    points = {learning_rate: values for learning_rate, values in points.items() if values}
    curve = Curve(list(points), list(points.values()))
    if kind == "diverged":
        curve = curve._replace(band=None)
    draw(axes, curve, look, printable(label))
    partial = [one for one, values in points.items() if len(values) < len(found[one])]
    mark(axes, curve, look, partial, size=4)


def _at_the_largest(axes: "Axes", view: View[Options], row: RowSlice, column: str) -> None:
    """Every seed's curve, up to where it diverges."""
    largest, look = view.swept(row)[-1], view.look[row.run]
    for seed in view.seeds:
        series = view.results.histories.series(largest.run_id, seed, column)
        axes.plot(series.steps, series.values, color=look.colour, ls=look.dash, lw=0.9, alpha=0.8)
