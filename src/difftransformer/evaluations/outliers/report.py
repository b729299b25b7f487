"""Activation outliers as columns, and as curves of how many values are how large."""

import json
from itertools import accumulate
from statistics import fmean

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.errors import DataError
from difftransformer.evaluations.outliers.settings import (
    HISTOGRAMS,
    RANKS,
    Options,
    median_metric,
    top_metric,
)
from difftransformer.reporting.charts import Point, lines
from difftransformer.reporting.collect import defined, metric
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import Figure, legend_below, tidy
from difftransformer.reporting.numbers import count
from difftransformer.reporting.panels import axis_marks, panels, round_log_ticks, row_signs
from difftransformer.reporting.sections import Metric, metric_section
from difftransformer.reporting.view import View

_LARGEST_SHARE = 0.7  # the small values look alike
_X = {"attention_logits": "|logit|", "hidden_states": "|activation|"}


def section(view: View[Options]) -> Section:
    """Make the section of one kind of activation."""
    first, kind = view.evaluated()[0], view.options.of
    metrics = [
        Metric(top_metric(kind, rank), f"Top-{rank} ↓", compared=rank == 1) for rank in RANKS
    ]
    metrics.append(Metric(median_metric(kind), "Median"))
    notes = [
        f"Absolute values over {count(defined(first, 'tokens'))} held-out tokens; the largest are "
        f"exact, the median is within {defined(first, 'median_error'):.1%}.",
        view.training_note(),
    ]
    return metric_section(view, metrics, decimals=1, notes=notes)


def figure(view: View[Options]) -> Figure:
    """Draw a panel for each section, the largest values marked."""
    figure, (places,) = panels(1, len(view.sections), (11, 4.2))
    for axes, part in zip(places, view.sections, strict=True):
        for place, row in enumerate(part.rows):
            lines(axes, _curve(part, row), view.look)
            tops = [metric(one, top_metric(part.options.of, 1)) for one in part.evaluated(row)]
            axis_marks(axes, [top for top in tops if top is not None], place, view.look[row.run])
        axes.set_yscale("log")
        round_log_ticks(axes, "{x:g}")
        tidy(axes, x=_X[part.options.of], y="share of values above x", title=part.title)
    legend_below(figure, row_signs(view.rows, view.look, mark=4.5))
    return figure


def _curve(view: View[Options], row: RowSlice) -> list[Point]:
    """Mean over seeds of the shares above, of the largest values."""
    seeds = [dict(_shares_above(view, row.run, seed)) for seed in view.seeds]
    start = max(min(shares) for shares in seeds)  # below it a seed's share is all, beyond its end 0
    edges = sorted({edge for shares in seeds for edge in shares if edge >= start})
    above = {edge: fmean(shares.get(edge, 0.0) for shares in seeds) for edge in edges}
    return [Point(row.run, x, share) for x, share in above.items() if share <= _LARGEST_SHARE]


def _shares_above(view: View[Options], run: str, seed: int) -> list[tuple[float, float]]:
    """Lower edge of each bin, and the share of all values in it or above."""
    path = view.detail(run, seed, HISTOGRAMS)
    try:
        found = json.loads(path.read_text())[view.options.of]
        counts = found["counts"]
        above = accumulate(reversed(counts))
        shares = [number / sum(counts) for number in above]
        return list(zip(found["edges"], reversed(shares), strict=True))
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise DataError(f"{path}: not a file of histograms ({error}); rerun the suite") from None
