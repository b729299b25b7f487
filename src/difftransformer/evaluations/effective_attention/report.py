"""Effective attention to the answer: by depth, beside what the projection does by itself."""

from difftransformer.config.evaluation import Options
from difftransformer.evaluations.effective_attention.settings import (
    DESCENDED,
    EFFECTIVE,
    KINDS,
    RATE,
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

_DRAWN = (EFFECTIVE, DESCENDED, WEIGHTS)


def section(context: SectionContext[Options]) -> Section:
    """Make the section: shares of the answer by depth, then in all of every kind."""
    suite = context.suite
    metrics = [
        MetricColumn(answer_name(kind, depth), f"{KINDS[kind]}, {depth}%", hidden=kind != EFFECTIVE)
        for kind in KINDS
        for depth in suite.depths
    ]
    metrics += [
        MetricColumn(answer_name(kind), f"{name}, all ↑", compared=kind == EFFECTIVE)
        for kind, name in KINDS.items()
    ]
    metrics += [
        MetricColumn(
            negative_name(kind), f"Negative: {name[0].lower()}{name[1:]}", hidden=kind == DESCENDED
        )
        for kind, name in KINDS.items()
    ]
    notes = [
        f"{suite.samples} prompts at each depth, {suite.needles} needles, one of them asked for.",
        f"By descent: {suite.steps} steps at a rate of {RATE:g} from the head's weights; "
        "where values are small they hardly leave them.",
        context.training_note(),
    ]
    return metric_section(context.as_proxy(suite.proxy), metrics, decimals=4, notes=notes)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw shares of the answer by its depth, a panel for each kind."""
    suite = context.suite
    drawn, (places,) = subplot_grid(1, len(_DRAWN), (4.0 * len(_DRAWN), 3.6), sharey=True)
    for axes, kind in zip(places, _DRAWN, strict=True):
        names = [answer_name(kind, depth) for depth in suite.depths]
        draw_metric_curves(axes, context, suite.depths, names, marks=4.5)
        axes.set_xticks(suite.depths)
        y = "share of the answer" if kind == _DRAWN[0] else ""
        label_axes(axes, x="depth of the answer, %", y=y, title=KINDS[kind])
    places[0].set_ylim(bottom=0)
    if suite.proxy is not None:
        drawn.suptitle(proxy_title("Ours", suite.proxy), x=0.0, ha="left", fontsize=10)
    legend_below(drawn, row_legend(context.rows, context.styles, mark=4.5))
    return drawn
