"""Tables and curves of scores by number of bits, one section per quantized quantity."""

from collections.abc import Sequence
from dataclasses import replace

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.evaluations.quantized.settings import Options, score_name
from difftransformer.provenance.result import PerItemScores, Result
from difftransformer.reporting.charts import PUBLISHED_STYLE, Point, draw_lines
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import (
    INK,
    Axes,
    Figure,
    RowStyle,
    label_axes,
    legend_below,
    legend_handle,
)
from difftransformer.reporting.number_format import format_number
from difftransformer.reporting.panels import draw_metric_curves, row_legend, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, metric_section

Widths = Sequence[int | None]
_PANELS = 4
_GUESS = RowStyle(INK, (2, 2), "")
_PAPER_SCORE = (
    "The paper's score, HellaSwag, is near chance for models of this scale; its curves are drawn."
)
_GROUPS = {
    "head": "the logits of one sequence and softmax map",
    "row": "the logits of one query",
    "weights": "the weights of one output",
    "kv_cache": "one position of a head",
}


class _InPercent(SectionContext[Options]):
    """A section whose scores are fractions, shown in %."""

    def eval_results(self, *rows: ResolvedRow, suite: str | None = None) -> list[Result]:
        """Return results with metrics and per-item values in %."""
        return [_percent(result) for result in super().eval_results(*rows, suite=suite)]


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of scores by number of bits of one quantized quantity."""
    context = _in_percent(context)
    suite, quantity, paper = context.suite, context.options.quantity, context.artifact.paper
    widths = _widths(context)
    arrow = "↑" if context.options.better == "higher" else "↓"
    metrics = [
        MetricColumn(
            _column(context, bits),
            f"{'exact' if bits is None else f'{bits} bits'} {arrow}",
            score_name(quantity, bits),
        )
        for bits in (None, *widths)
    ]
    name = f"{context.section.suites[0]}_{quantity}_change"
    change = {score_name(quantity, widths[-1]): 1.0, score_name(quantity, widths[0]): -1.0}
    metrics.append(
        MetricColumn(name, f"{widths[-1]} − {widths[0]} bits", change, show_difference=True)
    )
    guessing = ""
    if suite.chance is not None:
        chance = require_metric(context.eval_results()[0], "chance")
        guessing = f"; guessing gives {format_number(chance, 1 if context.options.percent else 2)}"
    notes = [
        f"Score: {_score(context)}{guessing}. One scale for "
        f"{_GROUPS.get(quantity, _GROUPS[suite.granularity.attention_logits])}."
    ]
    # The published numbers are scores of another suite.
    if paper is not None and suite.repeated_suite != context.options.published:
        context = replace(context, artifact=context.artifact.model_copy(update={"paper": None}))
        if context.options.published is not None:
            notes.append(_PAPER_SCORE)
    notes.append(context.training_note())
    return metric_section(context, metrics, decimals=_decimals(context), notes=notes)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw scores by number of bits, one row of panels per suite, and the published curves."""
    suites = list(dict.fromkeys(part.section.suites[0] for part in context.sibling_contexts))
    figure, grid = subplot_grid(len(suites), _PANELS, (13, 0.7 + 3.1 * len(suites)))
    for axes in grid.ravel():
        axes.set_visible(False)
    for line, suite in enumerate(suites):
        siblings = context.sibling_contexts
        contexts = [_in_percent(part) for part in siblings if part.section.suites[0] == suite]
        for column, part in enumerate(contexts):
            axes = grid[line, column]
            axes.set_visible(True)
            if column:
                axes.sharey(grid[line, 0])
            _section(axes, part)
            axes.set_ylabel("" if column else axes.get_ylabel())
    if context.artifact.paper is not None:
        grid[0, -1].set_visible(True)
        _published(grid[0, -1], context)
    handles = row_legend(context.rows, context.styles, marker_size=4.5)
    if context.suite.chance is not None:
        handles.append(legend_handle("guessing", _GUESS, line_width=0.8, marker_size=0))
    legend_below(figure, handles)
    return figure


def _in_percent(context: SectionContext[Options]) -> SectionContext[Options]:
    return (
        _InPercent(context.artifact, context.section, context.results)
        if context.options.percent
        else context
    )


def _percent(result: Result) -> Result:
    def times_100(scores: PerItemScores) -> PerItemScores:
        terms = [
            term.model_copy(update={"coefficient": 100 * term.coefficient}) for term in scores.terms
        ]
        return scores.model_copy(update={"terms": terms})

    metrics = {n: None if value is None else 100 * value for n, value in result.metrics.items()}
    per_item = {name: times_100(scores) for name, scores in result.per_item.items()}
    return result.model_copy(update={"metrics": metrics, "per_item": per_item})


def _score(context: SectionContext[Options]) -> str:
    words: str = context.suite.base_suite.metric_words(context.suite.score)
    return f"{words}, %" if context.options.percent else words


def _decimals(context: SectionContext[Options]) -> int:
    return 1 if context.options.percent else 3


def _widths(context: SectionContext[Options]) -> list[int]:
    return sorted(context.suite.bits, reverse=True)


def _section(axes: Axes, context: SectionContext[Options]) -> None:
    widths: Widths = [None, *_widths(context)]
    suite = context.suite
    if suite.chance is not None:
        chance = require_metric(context.eval_results()[0], "chance")
        axes.axhline(chance, color=INK, lw=0.8, ls=(0, _GUESS.dash))
    names = [score_name(context.options.quantity, bits) for bits in widths]
    draw_metric_curves(axes, context, range(len(widths)), names, marker_size=4.5)
    _axes(axes, widths, _score(context), context.title.partition(":")[0])


def _published(axes: Axes, context: SectionContext[Options]) -> None:
    """Draw the published curves of the same rows, hollow."""
    widths = _widths(context)
    for row in context.rows:
        values = [context.published.number(row.run, _column(context, bits)) for bits in widths]
        points = [Point(row.run, x, y) for x, y in enumerate(values) if y is not None]
        draw_lines(axes, points, context.styles, **PUBLISHED_STYLE)
    _axes(
        axes,
        widths,
        "HellaSwag accuracy, %" if context.options.percent else "HellaSwag accuracy",
        "Published: attention logits",
    )


def _axes(axes: Axes, widths: Widths, score: str, title: str) -> None:
    axes.set_xticks(range(len(widths)), ["exact" if bits is None else str(bits) for bits in widths])
    label_axes(axes, x="bits", y=score, title=title)


def _column(context: SectionContext[Options], bits: int | None) -> str:
    """Return the column id of a score; None: unquantized."""
    width = "unquantized" if bits is None else f"b{bits}"
    return f"{context.section.suites[0]}_{context.options.quantity}_{width}"
