"""Table and figure of effective attention to the answer, by depth and kind of weights."""

from difftransformer.config.evaluation import Options
from difftransformer.evaluations.effective_attention.settings import (
    DESCENDED,
    EFFECTIVE,
    KINDS,
    LEARNING_RATE,
    WEIGHTS,
    answer_name,
    negative_name,
)
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import Figure, label_axes, legend_below
from difftransformer.reporting.panels import draw_metric_curves, row_legend, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, metric_section
from difftransformer.reporting.table_notes import proxy_title

_PANELS = (EFFECTIVE, DESCENDED, WEIGHTS)


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of the answer's shares: by depth, and over all depths by kind."""
    suite = context.suite
    metrics = [
        MetricColumn(
            answer_name(kind, depth), f"{KINDS[kind]}, {depth}%", csv_only=kind != EFFECTIVE
        )
        for kind in KINDS
        for depth in suite.depths
    ]
    metrics += [
        MetricColumn(answer_name(kind), f"{name}, all depths ↑", show_difference=kind == EFFECTIVE)
        for kind, name in KINDS.items()
    ]
    metrics += [
        MetricColumn(negative_name(kind), f"{name}, negative", csv_only=kind == DESCENDED)
        for kind, name in KINDS.items()
    ]
    notes = [
        f"{suite.samples} prompts at each depth, {suite.needles} needles, of which one is queried.",
        f"Gradient descent: {suite.steps} steps from the attention weights at a learning rate of "
        f"{LEARNING_RATE:g}; where values are small, weights hardly change.",
        context.training_note(),
    ]
    return metric_section(context.as_proxy(suite.proxy), metrics, decimals=4, notes=notes)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the answer's share of attention by its depth, one panel per kind of weights."""
    suite = context.suite
    fig, (axs,) = subplot_grid(1, len(_PANELS), (4.0 * len(_PANELS), 3.6), sharey=True)
    for axes, kind in zip(axs, _PANELS, strict=True):
        names = [answer_name(kind, depth) for depth in suite.depths]
        draw_metric_curves(axes, context, suite.depths, names, marker_size=4.5)
        axes.set_xticks(suite.depths)
        y = "share of the answer" if kind == _PANELS[0] else ""
        label_axes(axes, x="depth of the answer, %", y=y, title=KINDS[kind])
    axs[0].set_ylim(bottom=0)
    if suite.proxy is not None:
        fig.suptitle(proxy_title("Ours", suite.proxy), x=0.0, ha="left", fontsize=10)
    legend_below(fig, row_legend(context.rows, context.styles, marker_size=4.5))
    return fig
