"""Attention sinks as columns, and as a picture of their shares by layer."""

from difftransformer.config.evaluation import Options
from difftransformer.evaluations.sinks.settings import THRESHOLD
from difftransformer.models.config import layer_metric
from difftransformer.reporting.charts import cell_estimates, cells_of, estimates
from difftransformer.reporting.collect import defined, layers_with
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import INK, Figure, Look, legend_below, sign, tidy
from difftransformer.reporting.numbers import count
from difftransformer.reporting.panels import panels, row_signs
from difftransformer.reporting.sections import Metric, by_layer, metric_section
from difftransformer.reporting.view import View

_EQUAL = Look(INK, (1, 1.65), "")


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
        f"Attention from positions {suite.first_query} to {suite.seq_len} over "
        f"{count(defined(first, 'tokens'))} held-out tokens; equal weights give a share of "
        f"{defined(first, 'uniform'):.3f}. A head with more than {THRESHOLD:g} is a sink.",
        view.training_note(),
    ]
    return metric_section(view, metrics, decimals=3, notes=notes)


def figure(view: View[Options]) -> Figure:
    """Draw a mark with its interval for each row and layer, and dots for the seeds."""
    layers = range(layers_with("share", view.evaluated()))
    names = {layer_metric("share", layer): str(layer + 1) for layer in layers}
    figure, ((axes,),) = panels(1, 1, (8, 4))
    estimates(axes, cell_estimates(cells_of(section(view), names)), view.look, names)
    uniform = defined(view.evaluated()[0], "uniform")
    axes.axhline(uniform, color=INK, lw=0.8, ls=(0, _EQUAL.dash))
    axes.set_ylim(bottom=0)
    tidy(axes, x="layer", y="share of attention on the first token", title=view.title)
    signs = row_signs(view.rows, view.look, line=0, mark=6)
    legend_below(figure, [*signs, sign("equal weights", _EQUAL, line=0.8, mark=0)])
    return figure
