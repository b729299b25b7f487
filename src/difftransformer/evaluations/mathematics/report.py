"""Mathematics: accuracy by set with lengths of output, and its mean by tokens of training."""

from collections.abc import Sequence
from functools import partial

from difftransformer.config.evaluation import AVERAGE
from difftransformer.config.training import TrainingConfig
from difftransformer.config.validation import validate
from difftransformer.data.math_sets import MATH_SETS
from difftransformer.errors import UserError
from difftransformer.evaluations.mathematics.settings import Options, Suite, kept_tokens, metric_of
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import Paper
from difftransformer.reporting.charts import (
    PUBLISHED,
    cell_estimates,
    cells_of,
    estimates,
    interval,
    lines,
    over_seeds,
)
from difftransformer.reporting.collect import defined, metric
from difftransformer.reporting.conditions import proxy_title, span
from difftransformer.reporting.document import Cell, Section
from difftransformer.reporting.drawing import Axes, Figure, legend_below, sign, tidy
from difftransformer.reporting.numbers import count, plain
from difftransformer.reporting.panels import panels, row_signs
from difftransformer.reporting.sections import Metric, metric_section
from difftransformer.reporting.view import View

DECIMALS = 1
FINAL = "final"
"""Column of the average after all of stage 1."""


def section(view: View[Options]) -> Section:
    """Make the section of accuracy by set, or of its average by tokens of stage 1."""
    sets = view.suite.tasks
    if view.options.by == "set":
        metrics = [_accuracy(name, f"{_label(name)} ↑", name) for name in [*sets, AVERAGE]]
        metrics.append(_length(AVERAGE, "Output tokens ↓", hidden=False))
        metrics += [_length(name, f"{_label(name)}, output tokens", hidden=True) for name in sets]
    else:
        metrics = []
        for tokens in (*_kept(view), None):
            name, when = (FINAL, "all tokens") if tokens is None else (f"t{tokens}", count(tokens))
            metrics.append(_accuracy(name, f"{when} ↑", AVERAGE, tokens))
            ending = ", all tokens" if tokens is None else ""
            metrics += [
                _accuracy(
                    metric_of(one, tokens=tokens), _label(one) + ending, one, tokens, hidden=True
                )
                for one in sets
            ]
    standing = view.standing_in(view.suite.proxy)
    return metric_section(standing, metrics, decimals=DECIMALS, notes=_notes(view))


def figure(view: View[Options]) -> Figure:
    """Draw the first section."""
    return _points(view) if view.options.by == "set" else _curves(view)


def accuracy(result: Result, name: str) -> float:
    """Accuracy in % under a name of the suite's metrics.

    Raises:
        UserError: it was not measured.
    """
    return 100 * defined(result, name)


def _label(name: str) -> str:
    return "Avg" if name == AVERAGE else MATH_SETS[name].label


def _kept(view: View[Options]) -> list[int]:
    """Tokens after which all rows were measured, ascending, the last ones left out."""
    seen: dict[tuple[int, ...], Result] = {}
    for result in view.trained():
        raw, place = result.settings["training"], f"{result.job_id}: settings.training"
        training = validate(TrainingConfig, raw, place)
        seen.setdefault(tuple(kept_tokens(training)), result)
    if len(seen) > 1:
        one, two, *_ = seen.values()
        raise UserError(
            f"{one.job_id} and {two.job_id} kept weights after different tokens, but share a "
            "table: rerun the older one"
        )
    (tokens,) = seen
    if not (tokens and view.suite.intermediate_checkpoints):
        raise UserError(
            f"{view.evaluated()[0].job_id} was measured at the end alone: give its run "
            "`training.save_checkpoints_at`, and the suite `intermediate_checkpoints: true`"
        )
    return list(tokens)


def _accuracy(
    id: str, header: str, name: str, tokens: int | None = None, *, hidden: bool = False
) -> Metric:
    def remark(result: Result) -> str:
        error = metric(result, metric_of(name, "stderr", tokens))
        return "" if error is None else f"(s.e. {plain(100 * error, DECIMALS)})"

    return Metric(
        id, header, {metric_of(name, tokens=tokens): 100.0}, remark, hidden,
        compared=id in (AVERAGE, FINAL),
    )  # fmt: skip


def _length(name: str, header: str, *, hidden: bool) -> Metric:
    return Metric(metric_of(name, "tokens"), header, hidden=hidden, compared=not hidden)


def _notes(view: View[Options]) -> list[str]:
    suite: Suite = view.suite
    found, sets = view.evaluated(), suite.tasks
    words = {
        "hub": "the sets, from a pinned commit",
        "builtin": "generated arithmetic in the fields of the sets, not the sets: do not compare "
        "with published numbers",
    }
    amounts = [
        f"{_label(name)} {defined(found[0], metric_of(name, 'samples')):.0f}" for name in sets
    ]
    verifier = {one.provenance.versions.get("math-verify", "unknown") for one in found}
    notes = [
        f"Accuracy in %; Avg is the unweighted mean over sets. Items: "
        f"{words.get(suite.data, 'the sets, from local files')}; {', '.join(amounts)}. No solved "
        f"examples; answers read and compared by math_verify {', '.join(sorted(verifier))}. A cell "
        "opens to its seeds with lm-eval's standard error.",
        f"Outputs are decoded greedily up to {suite.max_new_tokens} tokens of the models' own "
        f"tokenizer; {_span(found, sets, 'reached_limit')} of a set's outputs reach that limit.",
        view.training_note(),
    ]
    if any(metric(result, metric_of(name, "truncated")) for result in found for name in sets):
        notes.append(
            f"Prompts too long for the context lose their first tokens: "
            f"{_span(found, sets, 'truncated')} of a set's prompts."
        )
    return notes


def _span(found: Sequence[Result], sets: Sequence[str], part: str) -> str:
    shares = [defined(result, metric_of(name, part)) for result in found for name in sets]
    return span(shares, "{:.0%}".format)


def _curves(view: View[Options]) -> Figure:
    """Mean accuracy by tokens; published curves have axes of their own."""
    paper, look, kept = view.artifact.paper, view.look, _kept(view)
    number = 1 + (paper is not None)
    figure, ((ours, *others),) = panels(1, number, (1 + 4.4 * number, 3.9))
    names = [*(metric_of(AVERAGE, tokens=tokens) for tokens in kept), metric_of(AVERAGE)]
    for row in view.rows:
        last = int(defined(view.results.training(row.run, view.seeds[0]), "tokens"))
        by_seed = [[accuracy(one, name) for name in names] for one in view.evaluated(row)]
        lines(ours, over_seeds(row.run, [*kept, last], by_seed), look, marks=5.5)
        if paper is not None and (published := paper.series.get(row.run)) is not None:
            lines(others[0], over_seeds(row.run, published.x, [published.y]), look, **PUBLISHED)
    _by_tokens(ours, proxy_title("Mean over the sets", view.suite.proxy))
    for axes in others:
        _by_tokens(axes, f"Published: {paper.scale if paper is not None else ''}")
    signs = [sign("published", hollow=True)] if others else []
    legend_below(figure, [*row_signs(view.rows, look, mark=5.5), *signs])
    return figure


def _by_tokens(axes: Axes, title: str) -> None:
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda tokens, _: count(tokens))
    tidy(axes, x="tokens of stage 1", y="mean accuracy, %", title=title)


def _points(view: View[Options]) -> Figure:
    """Accuracies by set above, lengths of output below."""
    suite: Suite = view.suite
    look, paper = view.look, Paper(view.artifact.paper if suite.proxy is None else None)
    names = [*suite.tasks, AVERAGE]
    lengths = [metric_of(name, "tokens") for name in names]
    view.require_defined([*map(metric_of, names), *lengths])
    measured = section(view)
    figure, ((top,), (bottom,)) = panels(2, 1, (11, 6.4), height_ratios=(3, 2))
    accuracies = [
        one._replace(number=min(100.0, max(0.0, one.number)))
        for one in cell_estimates(cells_of(measured, names), ends=partial(_ends, view))
        if one.kind != "published" or suite.proxy is None
    ]
    estimates(top, accuracies, look, {name: _label(name) for name in names})
    of_length = cell_estimates(cells_of(measured, lengths))
    places = {metric_of(name, "tokens"): _label(name) for name in names}
    estimates(bottom, [one for one in of_length if one.kind in ("value", "seed")], look, places)
    for axes in (top, bottom):
        axes.set_ylim(bottom=0)
    known = [
        f"{row.label} {value:.0f}"
        for row in view.rows
        if (value := paper.number(row.run, lengths[-1])) is not None
    ]
    beside = f" (published: {', '.join(known)})" if known else ""
    tidy(top, x="", y="accuracy, %", title=proxy_title(view.title, suite.proxy))
    tidy(bottom, x="", y="tokens", title=f"Mean length of output{beside}")
    signs = [sign("published", hollow=True)] if suite.proxy is None else []
    legend_below(figure, [*row_signs(view.rows, look, line=0, mark=6), *signs])
    return figure


def _ends(view: View[Options], cell: Cell) -> tuple[float, float] | None:
    """Interval in %, of a single seed by its standard error over items."""
    error = metric(view.results.evaluation(view.part.suites[0], cell.row, view.seeds[0]),
                   metric_of(cell.column, "stderr"))  # fmt: skip
    return interval(cell, None if error is None else 100 * error)
