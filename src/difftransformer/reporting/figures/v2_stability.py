"""Training stability as a picture: by learning rate, and the curves at the largest one."""

from typing import TYPE_CHECKING

from difftransformer.config.artifact_slices import ArtifactSlice, RowSlice, SectionSlice
from difftransformer.reporting.collect import Results
from difftransformer.reporting.curves import Curve, draw, mark
from difftransformer.reporting.drawing import Look, legend_below, looks, printable, tidy
from difftransformer.reporting.histories import Histories
from difftransformer.reporting.measures.learning_rate import rates
from difftransformer.reporting.measures.stability import KINDS, ByRate, by_rate, kind_value
from difftransformer.reporting.numbers import rate
from difftransformer.reporting.stability import GRADIENT, LOSS

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


def build(artifact: ArtifactSlice, results: Results, histories: Histories) -> "Figure":
    """Draw the first section."""
    import matplotlib.pyplot as plt

    part = artifact.sections[0]
    look = looks([row.run for row in part.rows])
    found = {row.run: by_rate(artifact, part, row, results) for row in part.rows}
    figure = plt.figure(figsize=(12, 6.8), layout="constrained")
    parts = figure.subfigures(2, 1, squeeze=False)
    top, bottom = parts.ravel()
    for axes, (kind, title) in zip(top.subplots(1, len(KINDS)), KINDS.items(), strict=True):
        for row in part.rows:
            _by_rate(axes, kind, found[row.run], look[row.run], row.label)
        axes.set_xscale("log")
        axes.set_xticks(rates(part), [rate(value) for value in rates(part)], rotation=45)
        axes.minorticks_off()
        tidy(axes, x="peak learning rate", y=_UNITS[kind], title=title)
    for axes, column in zip(bottom.subplots(1, len(_CURVES)), _CURVES, strict=True):
        for row in part.rows:
            _at_the_largest(axes, artifact, part, row, column, histories, look[row.run])
        axes.set_yscale("log")
        tidy(
            axes, x="step", y=_CURVES[column], title=f"At {rate(rates(part)[-1])}, one line a seed"
        )
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
    means = [sum(values) / len(values) for values in points.values()]
    lows, highs = list(map(min, points.values())), list(map(max, points.values()))
    if kind == "diverged":
        lows = highs = means
    curve = Curve(list(points), means, lows, highs)
    draw(axes, curve, look, printable(label))
    partial = [one for one, values in points.items() if len(values) < len(found[one])]
    mark(axes, curve, look, partial, size=4)


def _at_the_largest(
    axes: "Axes",
    artifact: ArtifactSlice,
    part: SectionSlice,
    row: RowSlice,
    column: str,
    histories: Histories,
    look: Look,
) -> None:
    """Every seed's curve, up to where it diverges."""
    largest = max(
        (one for one in part.sweep if one.run == row.run), key=lambda one: one.learning_rate
    )
    for seed in artifact.seeds:
        series = histories.series(largest.run_id, seed, column)
        axes.plot(series.steps, series.values, color=look.colour, ls=look.dash, lw=0.9, alpha=0.8)
