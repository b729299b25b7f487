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
from difftransformer.reporting.cells import PublishedValues
from difftransformer.reporting.charts import (
    PUBLISHED_STYLE,
    cell_estimates,
    cell_interval,
    draw_estimates,
    draw_lines,
    seed_points,
    select_cells,
)
from difftransformer.reporting.collect import get_metric, require_metric
from difftransformer.reporting.document import Cell, Section
from difftransformer.reporting.drawing import Axes, Figure, label_axes, legend_below, legend_handle
from difftransformer.reporting.number_format import format_count, format_number
from difftransformer.reporting.panels import row_legend, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, metric_section
from difftransformer.reporting.table_notes import format_range, proxy_title

DECIMALS = 1
FINAL = "final"
"""Column of the average after all of stage 1."""


def section(context: SectionContext[Options]) -> Section:
    """Make the section of accuracy by set, or of its average by tokens of stage 1."""
    sets = context.suite.tasks
    if context.options.by == "set":
        metrics = [_accuracy(name, f"{_label(name)} ↑", name) for name in [*sets, AVERAGE]]
        metrics.append(_length(AVERAGE, "Output tokens ↓", hidden=False))
        metrics += [_length(name, f"{_label(name)}, output tokens", hidden=True) for name in sets]
    else:
        metrics = []
        for tokens in (*_kept(context), None):
            name, when = (
                (FINAL, "all tokens") if tokens is None else (f"t{tokens}", format_count(tokens))
            )
            metrics.append(_accuracy(name, f"{when} ↑", AVERAGE, tokens))
            ending = ", all tokens" if tokens is None else ""
            metrics += [
                _accuracy(
                    metric_of(one, tokens=tokens), _label(one) + ending, one, tokens, hidden=True
                )
                for one in sets
            ]
    standing = context.as_proxy(context.suite.proxy)
    return metric_section(standing, metrics, decimals=DECIMALS, notes=_notes(context))


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the first section."""
    return _points(context) if context.options.by == "set" else _curves(context)


def accuracy(result: Result, name: str) -> float:
    """Accuracy in % under a name of the suite's metrics.

    Raises:
        UserError: it was not measured.
    """
    return 100 * require_metric(result, name)


def _label(name: str) -> str:
    return "Avg" if name == AVERAGE else MATH_SETS[name].label


def _kept(context: SectionContext[Options]) -> list[int]:
    """Tokens after which all rows were measured, ascending, the last ones left out."""
    seen: dict[tuple[int, ...], Result] = {}
    for result in context.train_results():
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
    if not (tokens and context.suite.intermediate_checkpoints):
        raise UserError(
            f"{context.eval_results()[0].job_id} was measured at the end alone: give its run "
            "`training.save_checkpoints_at`, and the suite `intermediate_checkpoints: true`"
        )
    return list(tokens)


def _accuracy(
    id: str, header: str, name: str, tokens: int | None = None, *, hidden: bool = False
) -> MetricColumn:
    def remark(result: Result) -> str:
        error = get_metric(result, metric_of(name, "stderr", tokens))
        return "" if error is None else f"(s.e. {format_number(100 * error, DECIMALS)})"

    return MetricColumn(
        id, header, {metric_of(name, tokens=tokens): 100.0}, remark, hidden,
        show_difference=id in (AVERAGE, FINAL),
    )  # fmt: skip


def _length(name: str, header: str, *, hidden: bool) -> MetricColumn:
    return MetricColumn(
        metric_of(name, "tokens"), header, csv_only=hidden, show_difference=not hidden
    )


def _notes(context: SectionContext[Options]) -> list[str]:
    suite: Suite = context.suite
    found, sets = context.eval_results(), suite.tasks
    words = {
        "hub": "the sets, from a pinned commit",
        "builtin": "generated arithmetic in the fields of the sets, not the sets: do not compare "
        "with published numbers",
    }
    amounts = [
        f"{_label(name)} {require_metric(found[0], metric_of(name, 'samples')):.0f}"
        for name in sets
    ]
    verifier = {one.provenance.versions.get("math-verify", "unknown") for one in found}
    notes = [
        f"Accuracy in %; Avg is the unweighted mean over sets. Items: "
        f"{words.get(suite.data, 'the sets, from local files')}; {', '.join(amounts)}. No solved "
        f"examples; answers read and compared by math_verify {', '.join(sorted(verifier))}. A cell "
        "opens to its seeds with lm-eval's standard error.",
        f"Outputs are decoded greedily up to {suite.max_new_tokens} tokens of the models' own "
        f"tokenizer; {_span(found, sets, 'reached_limit')} of a set's outputs reach that limit.",
        context.training_note(),
    ]
    if any(get_metric(result, metric_of(name, "truncated")) for result in found for name in sets):
        notes.append(
            f"Prompts too long for the context lose their first tokens: "
            f"{_span(found, sets, 'truncated')} of a set's prompts."
        )
    return notes


def _span(found: Sequence[Result], sets: Sequence[str], part: str) -> str:
    shares = [require_metric(result, metric_of(name, part)) for result in found for name in sets]
    return format_range(shares, "{:.0%}".format)


def _curves(context: SectionContext[Options]) -> Figure:
    """Mean accuracy by tokens; published curves have axes of their own."""
    paper, look, kept = context.artifact.paper, context.styles, _kept(context)
    number = 1 + (paper is not None)
    figure, ((ours, *others),) = subplot_grid(1, number, (1 + 4.4 * number, 3.9))
    names = [*(metric_of(AVERAGE, tokens=tokens) for tokens in kept), metric_of(AVERAGE)]
    for row in context.rows:
        last = int(require_metric(context.results.training(row.run, context.seeds[0]), "tokens"))
        by_seed = [[accuracy(one, name) for name in names] for one in context.eval_results(row)]
        draw_lines(ours, seed_points(row.run, [*kept, last], by_seed), look, marker_size=5.5)
        if paper is not None and (published := paper.series.get(row.run)) is not None:
            draw_lines(
                others[0], seed_points(row.run, published.x, [published.y]), look, **PUBLISHED_STYLE
            )
    _by_tokens(ours, proxy_title("Mean over the sets", context.suite.proxy))
    for axes in others:
        _by_tokens(axes, f"Published: {paper.scale if paper is not None else ''}")
    signs = [legend_handle("published", hollow=True)] if others else []
    legend_below(figure, [*row_legend(context.rows, look, marker_size=5.5), *signs])
    return figure


def _by_tokens(axes: Axes, title: str) -> None:
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda tokens, _: format_count(tokens))
    label_axes(axes, x="tokens of stage 1", y="mean accuracy, %", title=title)


def _points(context: SectionContext[Options]) -> Figure:
    """Accuracies by set above, lengths of output below."""
    suite: Suite = context.suite
    look, paper = (
        context.styles,
        PublishedValues(context.artifact.paper if suite.proxy is None else None),
    )
    names = [*suite.tasks, AVERAGE]
    lengths = [metric_of(name, "tokens") for name in names]
    context.require_defined([*map(metric_of, names), *lengths])
    measured = section(context)
    figure, ((top,), (bottom,)) = subplot_grid(2, 1, (11, 6.4), height_ratios=(3, 2))
    accuracies = [
        one._replace(number=min(100.0, max(0.0, one.number)))
        for one in cell_estimates(select_cells(measured, names), ends=partial(_ends, context))
        if one.kind != "published" or suite.proxy is None
    ]
    draw_estimates(top, accuracies, look, {name: _label(name) for name in names})
    of_length = cell_estimates(select_cells(measured, lengths))
    places = {metric_of(name, "tokens"): _label(name) for name in names}
    draw_estimates(
        bottom, [one for one in of_length if one.kind in ("value", "seed")], look, places
    )
    for axes in (top, bottom):
        axes.set_ylim(bottom=0)
    known = [
        f"{row.label} {value:.0f}"
        for row in context.rows
        if (value := paper.number(row.run, lengths[-1])) is not None
    ]
    beside = f" (published: {', '.join(known)})" if known else ""
    label_axes(top, x="", y="accuracy, %", title=proxy_title(context.title, suite.proxy))
    label_axes(bottom, x="", y="tokens", title=f"Mean length of output{beside}")
    signs = [legend_handle("published", hollow=True)] if suite.proxy is None else []
    legend_below(figure, [*row_legend(context.rows, look, line_width=0, marker_size=6), *signs])
    return figure


def _ends(context: SectionContext[Options], cell: Cell) -> tuple[float, float] | None:
    """Interval in %, of a single seed by its standard error over items."""
    suite, seed = context.section.suites[0], context.seeds[0]
    result = context.results.evaluation(suite, cell.row, seed)
    error = get_metric(result, metric_of(cell.column, "stderr"))
    return cell_interval(cell, None if error is None else 100 * error)
