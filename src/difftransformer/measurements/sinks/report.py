"""Attention sinks as columns, and as a picture of their shares by layer."""

from typing import TYPE_CHECKING

from difftransformer.config.measurement import Options
from difftransformer.models.config import layer_metric
from difftransformer.reporting.collect import defined, layers_with
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import INK, legend_below, printable, tidy
from difftransformer.reporting.numbers import count
from difftransformer.reporting.panels import panels
from difftransformer.reporting.sections import Metric, by_layer, metric_section
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def section(view: View[Options]) -> Section:
    """Make the section; shares by layer are in the csv."""
    suite, first = view.suite, view.evaluated()[0]
    metrics = [
        Metric("share", "Share ↓", compared=True),
        Metric("sink_heads", "Heads that are sinks ↓"),
        Metric("weight", "Weight"),
        Metric("mass", "Sum of weights"),
    ]
    metrics += by_layer(view, "share", "Share")
    notes = [
        f"Attention from positions {suite.first_query} to {suite.seq_len} to the first token of a "
        f"window, whatever it is, over {count(defined(first, 'tokens'))} held-out tokens. Share: "
        "absolute weight over the sum of a row's absolute weights, mean over positions, layers and "
        f"heads; equal weights give {defined(first, 'uniform'):.3f}. A head is a sink if its mean "
        f"share exceeds {suite.threshold:g}. Weight and sum: absolute weights as they are, before "
        "the gate of a gated head.",
        view.training_note(),
    ]
    return metric_section(view, metrics, decimals=3, notes=notes)


def figure(view: View[Options]) -> "Figure":
    """Draw a mark for each row and layer, and small ones for the seeds."""
    layers = range(layers_with("share", view.evaluated()))
    names = [layer_metric("share", layer) for layer in layers]
    look = view.look
    figure, ((axes,),) = panels(1, 1, (7, 4))
    for place, row in enumerate(view.rows):
        aside = 0.7 * ((place + 0.5) / len(view.rows) - 0.5)
        one = look[row.run]
        label: str | None = printable(row.label)
        for layer, name in enumerate(names):
            values = [result.metrics.get(name) for result in view.evaluated(row)]
            shares = [value for value in values if value is not None]
            if not shares:  # of a layer without attention, or behind the last one
                continue
            axes.plot([layer + aside] * len(shares), shares, ".", color=one.colour, ms=3)
            mean = sum(shares) / len(shares)
            axes.plot([layer + aside], [mean], one.marker, color=one.colour, ms=7, label=label)
            label = None
    uniform = defined(view.evaluated()[0], "uniform")
    axes.axhline(uniform, color=INK, lw=0.8, ls=":", label="equal weights")
    axes.set_xticks(range(len(names)), [str(layer + 1) for layer in range(len(names))])
    axes.set_ylim(bottom=0)
    tidy(axes, x="layer", y="share of attention on the first token", title=view.title)
    legend_below(figure, axes)
    return figure
