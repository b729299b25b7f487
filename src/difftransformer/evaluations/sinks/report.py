"""Table and figure of attention sinks."""

from difftransformer.config.evaluation import Options
from difftransformer.evaluations.sinks.settings import THRESHOLD
from difftransformer.models.config import layer_metric
from difftransformer.reporting.charts import cell_estimates, draw_estimates, select_cells
from difftransformer.reporting.collect import count_layers, require_metric
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import (
    INK,
    Figure,
    RowStyle,
    label_axes,
    legend_below,
    legend_handle,
)
from difftransformer.reporting.number_format import format_count
from difftransformer.reporting.panels import row_legend, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, layer_columns, metric_section

_UNIFORM = RowStyle(INK, (1, 1.65), "")


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of attention on the first token; shares by layer are in the csv."""
    suite, first = context.suite, context.eval_results()[0]
    metrics = [
        MetricColumn("share", "First-token share ↓", show_difference=True),
        MetricColumn("sink_heads", "Sink heads ↓"),
        MetricColumn("weight", "First-token weight"),
        MetricColumn("mass", "Sum of weights"),
    ]
    metrics += layer_columns(context, "share", "First-token share")
    notes = [
        f"Attention from positions {suite.first_query} to {suite.seq_len} over "
        f"{format_count(require_metric(first, 'tokens'))} held-out tokens; uniform attention has a "
        f"share of {require_metric(first, 'uniform'):.3f}. A sink head has a share above "
        f"{THRESHOLD:g}.",
        context.training_note(),
    ]
    return metric_section(context, metrics, decimals=3, notes=notes)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the share of attention on the first token by layer: means with intervals, and seeds."""
    layers = range(count_layers("share", context.eval_results()))
    names = {layer_metric("share", layer): str(layer + 1) for layer in layers}
    fig, ((axes,),) = subplot_grid(1, 1, (8, 4))
    draw_estimates(
        axes, cell_estimates(select_cells(section(context), names)), context.styles, names
    )
    uniform = require_metric(context.eval_results()[0], "uniform")
    axes.axhline(uniform, color=INK, lw=0.8, ls=(0, _UNIFORM.dash))
    axes.set_ylim(bottom=0)
    label_axes(axes, x="layer", y="share of attention on the first token", title=context.title)
    signs = row_legend(context.rows, context.styles, line_width=0, marker_size=6)
    legend_below(
        fig, [*signs, legend_handle("uniform attention", _UNIFORM, line_width=0.8, marker_size=0)]
    )
    return fig
