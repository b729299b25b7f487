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
from difftransformer.reporting.conditions import proxy_title
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import Figure, legend_below, tidy
from difftransformer.reporting.panels import metric_curves, panels, row_signs
from difftransformer.reporting.sections import Metric, metric_section
from difftransformer.reporting.view import View

_DRAWN = (EFFECTIVE, DESCENDED, WEIGHTS)


def section(view: View[Options]) -> Section:
    """Make the section: shares of the answer by depth, then in all of every kind."""
    suite = view.suite
    metrics = [
        Metric(answer_name(kind, depth), f"{KINDS[kind]}, {depth}%", hidden=kind != EFFECTIVE)
        for kind in KINDS
        for depth in suite.depths
    ]
    metrics += [
        Metric(answer_name(kind), f"{name}, all ↑", compared=kind == EFFECTIVE)
        for kind, name in KINDS.items()
    ]
    metrics += [
        Metric(
            negative_name(kind), f"Negative: {name[0].lower()}{name[1:]}", hidden=kind == DESCENDED
        )
        for kind, name in KINDS.items()
    ]
    notes = [
        f"{suite.samples} prompts at each depth, {suite.needles} needles, one of them asked for.",
        f"By descent: {suite.steps} steps at a rate of {RATE:g} from the head's weights; "
        "where values are small they hardly leave them.",
        view.training_note(),
    ]
    return metric_section(view.standing_in(suite.proxy), metrics, decimals=4, notes=notes)


def figure(view: View[Options]) -> Figure:
    """Draw shares of the answer by its depth, a panel for each kind."""
    suite = view.suite
    drawn, (places,) = panels(1, len(_DRAWN), (4.0 * len(_DRAWN), 3.6), sharey=True)
    for axes, kind in zip(places, _DRAWN, strict=True):
        names = [answer_name(kind, depth) for depth in suite.depths]
        metric_curves(axes, view, suite.depths, names, marks=4.5)
        axes.set_xticks(suite.depths)
        y = "share of the answer" if kind == _DRAWN[0] else ""
        tidy(axes, x="depth of the answer, %", y=y, title=KINDS[kind])
    places[0].set_ylim(bottom=0)
    if suite.proxy is not None:
        drawn.suptitle(proxy_title("Ours", suite.proxy), x=0.0, ha="left", fontsize=10)
    legend_below(drawn, row_signs(view.rows, view.look, mark=4.5))
    return drawn
