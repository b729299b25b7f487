"""Scores by bits, of the rounding that a section is about: columns, and a panel a section."""

from collections.abc import Sequence
from dataclasses import replace

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.evaluations.quantized.settings import Options, score_name
from difftransformer.provenance.result import PerItemScores, Result
from difftransformer.reporting.charts import PUBLISHED, Point, lines
from difftransformer.reporting.collect import defined
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import INK, Axes, Figure, Look, legend_below, sign, tidy
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.panels import metric_curves, panels, row_signs
from difftransformer.reporting.sections import Metric, metric_section
from difftransformer.reporting.view import View

Widths = Sequence[int | None]
_PANELS = 4
_GUESS = Look(INK, (2, 2), "")
_ITS_SCORE = "The paper's score, HellaSwag, is beyond models of this scale: its curves are drawn."
_GROUPS = {
    "head": "the logits of one sequence and softmax map",
    "row": "the logits of one query",
    "weights": "the weights of one output",
    "kv_cache": "one position of a head",
}


class _InPercent(View[Options]):
    """A section whose scores are shares, all of them times 100."""

    def evaluated(self, *rows: RowSlice, suite: str | None = None) -> list[Result]:
        """Results with their numbers in %, and with what each item adds to them."""
        return [_percent(one) for one in super().evaluated(*rows, suite=suite)]


def section(view: View[Options]) -> Section:
    """Make the section of one kind of rounding."""
    view = _shown(view)
    suite, what, paper = view.suite, view.options.what, view.artifact.paper
    widths = _widths(view)
    arrow = "↑" if view.options.better == "higher" else "↓"
    metrics = [
        Metric(
            _column(view, bits),
            f"{'exact' if bits is None else f'{bits} bits'} {arrow}",
            score_name(what, bits),
        )
        for bits in (None, *widths)
    ]
    name = f"{view.part.suites[0]}_{what}_change"
    change = {score_name(what, widths[-1]): 1.0, score_name(what, widths[0]): -1.0}
    metrics.append(Metric(name, f"{widths[-1]} − {widths[0]} bits", change, compared=True))
    guessing = ""
    if suite.chance is not None:
        chance = defined(view.evaluated()[0], "chance")
        guessing = f"; guessing gives {plain(chance, 1 if view.options.percent else 2)}"
    notes = [
        f"Score: {_score(view)}{guessing}. One scale for "
        f"{_GROUPS.get(what, _GROUPS[suite.granularity.attention_logits])}."
    ]
    # The published numbers answer other questions.
    if paper is not None and suite.measured != view.options.published:
        view = replace(view, artifact=view.artifact.model_copy(update={"paper": None}))
        if view.options.published is not None:
            notes.append(_ITS_SCORE)
    notes.append(view.training_note())
    return metric_section(view, metrics, decimals=_decimals(view), notes=notes)


def figure(view: View[Options]) -> Figure:
    """Draw sections that share a suite in one line, the published curves behind the first."""
    suites = list(dict.fromkeys(one.part.suites[0] for one in view.sections))
    figure, grid = panels(len(suites), _PANELS, (13, 0.7 + 3.1 * len(suites)))
    for axes in grid.ravel():
        axes.set_visible(False)
    for line, suite in enumerate(suites):
        views = [_shown(one) for one in view.sections if one.part.suites[0] == suite]
        for place, one in enumerate(views):
            axes = grid[line, place]
            axes.set_visible(True)
            if place:
                axes.sharey(grid[line, 0])
            _section(axes, one)
            axes.set_ylabel("" if place else axes.get_ylabel())
    if view.artifact.paper is not None:
        grid[0, -1].set_visible(True)
        _published(grid[0, -1], view)
    signs = row_signs(view.rows, view.look, mark=4.5)
    if view.suite.chance is not None:
        signs.append(sign("guessing", _GUESS, line=0.8, mark=0))
    legend_below(figure, signs)
    return figure


def _shown(view: View[Options]) -> View[Options]:
    return _InPercent(view.artifact, view.part, view.results) if view.options.percent else view


def _percent(result: Result) -> Result:
    def times_100(scores: PerItemScores) -> PerItemScores:
        terms = [
            term.model_copy(update={"coefficient": 100 * term.coefficient}) for term in scores.terms
        ]
        return scores.model_copy(update={"terms": terms})

    metrics = {n: None if value is None else 100 * value for n, value in result.metrics.items()}
    per_item = {name: times_100(scores) for name, scores in result.per_item.items()}
    return result.model_copy(update={"metrics": metrics, "per_item": per_item})


def _score(view: View[Options]) -> str:
    words: str = view.suite.asked.metric_words(view.suite.score)
    return f"{words}, %" if view.options.percent else words


def _decimals(view: View[Options]) -> int:
    return 1 if view.options.percent else 3


def _widths(view: View[Options]) -> list[int]:
    return sorted(view.suite.bits, reverse=True)


def _section(axes: Axes, view: View[Options]) -> None:
    widths: Widths = [None, *_widths(view)]
    suite = view.suite
    if suite.chance is not None:
        chance = defined(view.evaluated()[0], "chance")
        axes.axhline(chance, color=INK, lw=0.8, ls=(0, _GUESS.dash))
    names = [score_name(view.options.what, bits) for bits in widths]
    metric_curves(axes, view, range(len(widths)), names, marks=4.5)
    _axes(axes, widths, _score(view), view.title.partition(":")[0])


def _published(axes: Axes, view: View[Options]) -> None:
    """Draw the published rows that stand beside ours, hollow."""
    widths = _widths(view)
    for row in view.rows:
        values = [view.paper.number(row.run, _column(view, bits)) for bits in widths]
        points = [Point(row.run, x, y) for x, y in enumerate(values) if y is not None]
        lines(axes, points, view.look, **PUBLISHED)
    _axes(
        axes,
        widths,
        "HellaSwag, % right" if view.options.percent else "HellaSwag, share right",
        "Published: attention logits",
    )


def _axes(axes: Axes, widths: Widths, score: str, title: str) -> None:
    axes.set_xticks(range(len(widths)), ["exact" if bits is None else str(bits) for bits in widths])
    tidy(axes, x="bits", y=score, title=title)


def _column(view: View[Options], bits: int | None) -> str:
    """Column of a score; None is nothing rounded."""
    width = "unquantized" if bits is None else f"b{bits}"
    return f"{view.part.suites[0]}_{view.options.what}_{width}"
