"""Language modelling: validation loss overall, on AR-Hit and on Others, per variant.

The figure has loss curves, their differences to the baseline, and a forest plot of final losses.
"""

from collections.abc import Sequence
from dataclasses import replace

from difftransformer.config.evaluation import Options
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import DIFFERENCE_SUFFIX
from difftransformer.reporting.charts import (
    cell_estimates,
    draw_estimates,
    seed_legend,
    select_cells,
)
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import (
    INK,
    Figure,
    escape_label,
    label_axes,
    legend_below,
    legend_handle,
)
from difftransformer.reporting.loss_panels import draw_loss_curves, draw_loss_differences
from difftransformer.reporting.number_format import format_count
from difftransformer.reporting.panels import row_legend, stacked_subfigures
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, metric_section

_LOSSES = (
    MetricColumn("valid", "Valid ↓", "loss", show_difference=True),
    MetricColumn("ar_hit", "AR-Hit ↓", "ar_hit_loss"),
    MetricColumn("others", "Others ↓", "others_loss"),
)


_FEW = 1000
"""Slices with fewer tokens than this are marked; their loss has a standard error of 0.1 nats."""
_FEW_MARK = " †"


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of losses in nats per token, with paired differences."""
    suite, first = context.suite, context.eval_results()[0]
    few = {
        loss.id: fewest
        for loss in _LOSSES
        if (fewest := _fewest(context.eval_results(), f"{loss.id}_tokens")) is not None
        and fewest < _FEW
    }
    losses = [
        replace(loss, header=loss.header + _FEW_MARK) if loss.id in few else loss
        for loss in _LOSSES
    ]
    notes = [
        f"AR-Hit: last tokens of n-grams with n = {suite.n} that occur earlier in the context and "
        f"at most {suite.max_count} times in the training data, "
        f"{require_metric(first, 'ar_hit_share'):.1%} of "
        f"{format_count(require_metric(first, 'tokens'))} held-out "
        "tokens; Others: the rest.",
        context.training_note(),
    ]
    notes += [
        f"†: {number} tokens, too few to compare rows by this loss."
        for number in sorted(set(few.values()))
    ]
    return metric_section(context, losses, decimals=3, notes=notes, facts=True)


def _fewest(results: Sequence[Result], name: str) -> int | None:
    """Return the fewest tokens of a slice over results; None: not recorded."""
    counts = [int(number) for result in results if (number := result.metrics.get(name)) is not None]
    return min(counts, default=None)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw loss curves, their differences to the baseline, and differences of the final losses."""
    figure, top, bottom = stacked_subfigures((11, 7.4), (1.2, 1), 0.04)
    left, right = top.subplots(1, 2)
    draw_loss_curves(left, context, context.styles)
    draw_loss_differences(right, context, context.styles)
    top.legend(
        handles=row_legend(context.rows, context.styles), loc="outside upper center", ncols=4,
        fontsize=8,
        handlelength=2.6,
    )  # fmt: skip
    measured = section(context)
    for axes, loss in zip(bottom.subplots(1, len(_LOSSES), sharey=True), _LOSSES, strict=True):
        axes.axvline(0, color=INK, lw=0.8)
        points = cell_estimates(select_cells(measured, [loss.id + DIFFERENCE_SUFFIX]), by="row")
        labels = {row.run: escape_label(row.label, 28) for row in context.rows_with_baseline}
        draw_estimates(axes, points, context.styles, labels, along="y", dodge=False)
        axes.locator_params(axis="x", nbins=5)  # labels of small steps touch where there are more
        title = f"Δ {loss.header.removesuffix(' ↓')} at the end"
        label_axes(axes, x="nats per token", y="", title=title)
    signs = seed_legend(context.seeds)
    if context.artifact.paper is not None:
        signs.append(legend_handle(f"published ({context.artifact.paper.scale})", hollow=True))
    legend_below(bottom, signs)
    return figure
