"""Scores by bits, of the rounding that a section is about: columns, and a panel a section."""

from collections.abc import Sequence
from dataclasses import replace

from difftransformer.config.artifact_slices import RowSlice
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
_ITS_SCORE = "The paper's score, HellaSwag, is beyond models of this scale: its curves are drawn."
_GROUPS = {
    "head": "the logits of one sequence and softmax map",
    "row": "the logits of one query",
    "weights": "the weights of one output",
    "kv_cache": "one position of a head",
}


class _InPercent(SectionContext[Options]):
    """A section whose scores are shares, all of them times 100."""

    def eval_results(self, *rows: RowSlice, suite: str | None = None) -> list[Result]:
        """Results with their numbers in %, and with what each item adds to them."""
        return [_percent(one) for one in super().eval_results(*rows, suite=suite)]


def section(context: SectionContext[Options]) -> Section:
    """Make the section of one kind of rounding."""
    context = _shown(context)
    suite, what, paper = context.suite, context.options.what, context.artifact.paper
    widths = _widths(context)
    arrow = "↑" if context.options.better == "higher" else "↓"
    metrics = [
        MetricColumn(
            _column(context, bits),
            f"{'exact' if bits is None else f'{bits} bits'} {arrow}",
            score_name(what, bits),
        )
        for bits in (None, *widths)
    ]
    name = f"{context.section.suites[0]}_{what}_change"
    change = {score_name(what, widths[-1]): 1.0, score_name(what, widths[0]): -1.0}
    metrics.append(MetricColumn(name, f"{widths[-1]} − {widths[0]} bits", change, compared=True))
    guessing = ""
    if suite.chance is not None:
        chance = require_metric(context.eval_results()[0], "chance")
        guessing = f"; guessing gives {format_number(chance, 1 if context.options.percent else 2)}"
    notes = [
        f"Score: {_score(context)}{guessing}. One scale for "
        f"{_GROUPS.get(what, _GROUPS[suite.granularity.attention_logits])}."
    ]
    # The published numbers answer other questions.
    if paper is not None and suite.measured != context.options.published:
        context = replace(context, artifact=context.artifact.model_copy(update={"paper": None}))
        if context.options.published is not None:
            notes.append(_ITS_SCORE)
    notes.append(context.training_note())
    return metric_section(context, metrics, decimals=_decimals(context), notes=notes)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw sections that share a suite in one line, the published curves behind the first."""
    suites = list(dict.fromkeys(one.section.suites[0] for one in context.sibling_contexts))
    figure, grid = subplot_grid(len(suites), _PANELS, (13, 0.7 + 3.1 * len(suites)))
    for axes in grid.ravel():
        axes.set_visible(False)
    for line, suite in enumerate(suites):
        siblings = context.sibling_contexts
        contexts = [_shown(one) for one in siblings if one.section.suites[0] == suite]
        for place, one in enumerate(contexts):
            axes = grid[line, place]
            axes.set_visible(True)
            if place:
                axes.sharey(grid[line, 0])
            _section(axes, one)
            axes.set_ylabel("" if place else axes.get_ylabel())
    if context.artifact.paper is not None:
        grid[0, -1].set_visible(True)
        _published(grid[0, -1], context)
    signs = row_legend(context.rows, context.styles, mark=4.5)
    if context.suite.chance is not None:
        signs.append(legend_handle("guessing", _GUESS, line=0.8, mark=0))
    legend_below(figure, signs)
    return figure


def _shown(context: SectionContext[Options]) -> SectionContext[Options]:
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
    words: str = context.suite.asked.metric_words(context.suite.score)
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
    names = [score_name(context.options.what, bits) for bits in widths]
    draw_metric_curves(axes, context, range(len(widths)), names, marks=4.5)
    _axes(axes, widths, _score(context), context.title.partition(":")[0])


def _published(axes: Axes, context: SectionContext[Options]) -> None:
    """Draw the published rows that stand beside ours, hollow."""
    widths = _widths(context)
    for row in context.rows:
        values = [context.published.number(row.run, _column(context, bits)) for bits in widths]
        points = [Point(row.run, x, y) for x, y in enumerate(values) if y is not None]
        draw_lines(axes, points, context.styles, **PUBLISHED_STYLE)
    _axes(
        axes,
        widths,
        "HellaSwag, % right" if context.options.percent else "HellaSwag, share right",
        "Published: attention logits",
    )


def _axes(axes: Axes, widths: Widths, score: str, title: str) -> None:
    axes.set_xticks(range(len(widths)), ["exact" if bits is None else str(bits) for bits in widths])
    label_axes(axes, x="bits", y=score, title=title)


def _column(context: SectionContext[Options], bits: int | None) -> str:
    """Column of a score; None is nothing rounded."""
    width = "unquantized" if bits is None else f"b{bits}"
    return f"{context.section.suites[0]}_{context.options.what}_{width}"
