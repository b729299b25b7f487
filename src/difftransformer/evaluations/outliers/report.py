"""Tables of activation outliers, and curves of the share of activations above a magnitude."""

import json
from itertools import accumulate
from statistics import fmean

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.errors import DataError
from difftransformer.evaluations.outliers.settings import HISTOGRAMS, RANKS, Options
from difftransformer.reporting.charts import Point, draw_lines
from difftransformer.reporting.collect import get_metric, require_metric
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import Figure, label_axes, legend_below
from difftransformer.reporting.number_format import format_count
from difftransformer.reporting.panels import (
    mark_x_values,
    row_legend,
    set_decade_ticks,
    subplot_grid,
)
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, metric_section

_LARGEST_SHARE = 0.7  # curves start here, since small values hardly differ
_X = {"attention_logits": "|logit|", "hidden_states": "|activation|"}


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of the largest and median values of one kind of activation."""
    first, kind = context.eval_results()[0], context.options.activation
    metrics = [
        MetricColumn(f"{kind}_top{rank}", f"Top-{rank} ↓", show_difference=rank == 1)
        for rank in RANKS
    ]
    metrics.append(MetricColumn(f"{kind}_median", "Median"))
    notes = [
        f"Absolute values over {format_count(require_metric(first, 'tokens'))} held-out tokens; "
        "the largest are "
        f"exact, the median is within {require_metric(first, 'median_error'):.1%}.",
        context.training_note(),
    ]
    return metric_section(context, metrics, decimals=1, notes=notes)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the share of activations above x, one panel per section; the largest are marked."""
    figure, (panel_axes,) = subplot_grid(1, len(context.sibling_contexts), (11, 4.2))
    for axes, part in zip(panel_axes, context.sibling_contexts, strict=True):
        for row_index, row in enumerate(part.rows):
            draw_lines(axes, _curve(part, row), context.styles)
            tops = [
                get_metric(result, f"{part.options.activation}_top1")
                for result in part.eval_results(row)
            ]
            mark_x_values(
                axes, [top for top in tops if top is not None], row_index, context.styles[row.run]
            )
        axes.set_yscale("log")
        set_decade_ticks(axes, "{x:g}")
        label_axes(
            axes, x=_X[part.options.activation], y="share of values above x", title=part.title
        )
    legend_below(figure, row_legend(context.rows, context.styles, marker_size=4.5))
    return figure


def _curve(context: SectionContext[Options], row: ResolvedRow) -> list[Point]:
    """Return the share of values above x, mean over seeds, for the largest values."""
    seeds = [dict(_shares_above(context, row.run, seed)) for seed in context.seeds]
    start = max(min(shares) for shares in seeds)  # below it some seed's share is 1
    edges = sorted({edge for shares in seeds for edge in shares if edge >= start})
    above = {edge: fmean(shares.get(edge, 0.0) for shares in seeds) for edge in edges}
    return [Point(row.run, x, share) for x, share in above.items() if share <= _LARGEST_SHARE]


def _shares_above(
    context: SectionContext[Options], run: str, seed: int
) -> list[tuple[float, float]]:
    """Return the lower edge of each bin, and the share of values in this bin or above."""
    path = context.detail(run, seed, HISTOGRAMS)
    try:
        histogram = json.loads(path.read_text())[context.options.activation]
        counts = histogram["counts"]
        above = accumulate(reversed(counts))
        shares = [number / sum(counts) for number in above]
        return list(zip(histogram["edges"], reversed(shares), strict=True))
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise DataError(
            f"{path}: not a file of histograms ({error}); run the suite again"
        ) from None
