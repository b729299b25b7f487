"""Tables and figures of mathematics: accuracy and output length by set, or means by tokens."""

from collections.abc import Sequence
from functools import partial

from difftransformer.config.evaluation import AVERAGE
from difftransformer.config.training import TrainingConfig
from difftransformer.config.validation import validate
from difftransformer.data.math_sets import MATH_SETS
from difftransformer.errors import UserError
from difftransformer.evaluations.mathematics.settings import (
    Options,
    Suite,
    intermediate_tokens,
    metric_name,
)
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
"""Id of the column with the average accuracy at the end of the first training stage."""


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of accuracy by set, or of mean accuracy by training tokens."""
    sets = context.suite.tasks
    if context.options.by == "set":
        metrics = [_accuracy(name, f"{_label(name)} ↑", name) for name in [*sets, AVERAGE]]
        metrics.append(_length(AVERAGE, "Output tokens ↓", hidden=False))
        metrics += [_length(name, f"{_label(name)}, output tokens", hidden=True) for name in sets]
    else:
        metrics = []
        for tokens in (*_checkpoint_tokens(context), None):
            name, header, suffix = f"t{tokens}", format_count(tokens or 0), ""
            if tokens is None:
                name, header, suffix = FINAL, "all tokens", ", all tokens"
            metrics.append(_accuracy(name, f"{header} ↑", AVERAGE, tokens))
            for task in sets:
                name = metric_name(task, tokens=tokens)
                metrics.append(_accuracy(name, _label(task) + suffix, task, tokens, hidden=True))
    proxy_context = context.as_proxy(context.suite.proxy)
    return metric_section(proxy_context, metrics, decimals=DECIMALS, notes=_notes(context))


def figure(context: SectionContext[Options]) -> Figure:
    """Draw accuracy and output length by set, or mean accuracy by training tokens."""
    return _by_set(context) if context.options.by == "set" else _curves(context)


def accuracy(result: Result, name: str) -> float:
    """Return the value of a result's accuracy metric in %.

    Raises:
        UserError: The accuracy was not measured.
    """
    return 100 * require_metric(result, name)


def _label(name: str) -> str:
    return "Avg" if name == AVERAGE else MATH_SETS[name].label


def _checkpoint_tokens(context: SectionContext[Options]) -> list[int]:
    """Return the trained tokens of the rows' intermediate checkpoints, ascending."""
    results_by_tokens: dict[tuple[int, ...], Result] = {}
    for result in context.train_results():
        raw, location = result.settings["training"], f"{result.job_id}: settings.training"
        training = validate(TrainingConfig, raw, location)
        results_by_tokens.setdefault(tuple(intermediate_tokens(training)), result)
    if len(results_by_tokens) > 1:
        first, second, *_ = results_by_tokens.values()
        raise UserError(
            f"{first.job_id} and {second.job_id} have checkpoints after different tokens, "
            "but share a table: rerun the older one"
        )
    (tokens,) = results_by_tokens
    if not (tokens and context.suite.intermediate_checkpoints):
        raise UserError(
            f"{context.eval_results()[0].job_id} was measured only at the end: give its run "
            "`training.save_checkpoints_at`, and the suite `intermediate_checkpoints: true`"
        )
    return list(tokens)


def _accuracy(
    id: str, header: str, name: str, tokens: int | None = None, *, hidden: bool = False
) -> MetricColumn:
    def remark(result: Result) -> str:
        error = get_metric(result, metric_name(name, "stderr", tokens))
        return "" if error is None else f"(s.e. {format_number(100 * error, DECIMALS)})"

    return MetricColumn(
        id, header, {metric_name(name, tokens=tokens): 100.0}, remark, hidden,
        show_difference=id in (AVERAGE, FINAL),
    )  # fmt: skip


def _length(name: str, header: str, *, hidden: bool) -> MetricColumn:
    return MetricColumn(
        metric_name(name, "tokens"), header, csv_only=hidden, show_difference=not hidden
    )


def _notes(context: SectionContext[Options]) -> list[str]:
    suite: Suite = context.suite
    results, sets = context.eval_results(), suite.tasks
    words = {
        "hub": "the sets, from a pinned commit",
        "builtin": "generated arithmetic, a proxy of the sets: do not compare with published "
        "numbers",
    }
    amounts = [
        f"{_label(name)} {require_metric(results[0], metric_name(name, 'samples')):.0f}"
        for name in sets
    ]
    verifier = {result.provenance.versions.get("math-verify", "unknown") for result in results}
    notes = [
        f"Accuracy in %; Avg is the unweighted mean over sets. Items: "
        f"{words.get(suite.data, 'the sets, from local files')}; {', '.join(amounts)}. Zero-shot; "
        f"answers parsed and compared by math_verify {', '.join(sorted(verifier))}. A cell "
        "opens to its seeds with lm-eval's standard error.",
        f"Outputs are decoded greedily up to {suite.max_new_tokens} tokens of the models' own "
        f"tokenizer; {_share_range(results, sets, 'reached_limit')} of a set's outputs "
        "reach that limit.",
        context.training_note(),
    ]
    if any(get_metric(r, metric_name(name, "truncated")) for r in results for name in sets):
        notes.append(
            f"Prompts too long for the context lose their first tokens: "
            f"{_share_range(results, sets, 'truncated')} of a set's prompts."
        )
    return notes


def _share_range(results: Sequence[Result], sets: Sequence[str], part: str) -> str:
    shares = [require_metric(r, metric_name(name, part)) for r in results for name in sets]
    return format_range(shares, "{:.0%}".format)


def _curves(context: SectionContext[Options]) -> Figure:
    """Draw mean accuracy by tokens; published curves have axes of their own."""
    paper, styles, checkpoints = context.artifact.paper, context.styles, _checkpoint_tokens(context)
    number = 1 + (paper is not None)
    figure, ((measured_axes, *published_axes),) = subplot_grid(1, number, (1 + 4.4 * number, 3.9))
    names = [metric_name(AVERAGE, tokens=tokens) for tokens in (*checkpoints, None)]
    for row in context.rows:
        last = int(require_metric(context.results.training(row.run, context.seeds[0]), "tokens"))
        by_seed = [[accuracy(r, name) for name in names] for r in context.eval_results(row)]
        points = seed_points(row.run, [*checkpoints, last], by_seed)
        draw_lines(measured_axes, points, styles, marker_size=5.5)
        if paper is not None and (published := paper.series.get(row.run)) is not None:
            points = seed_points(row.run, published.x, [published.y])
            draw_lines(published_axes[0], points, styles, **PUBLISHED_STYLE)
    _by_tokens(measured_axes, proxy_title("Mean over the sets", context.suite.proxy))
    for axes in published_axes:
        _by_tokens(axes, f"Published: {paper.scale if paper is not None else ''}")
    handles = [legend_handle("published", hollow=True)] if published_axes else []
    legend_below(figure, [*row_legend(context.rows, styles, marker_size=5.5), *handles])
    return figure


def _by_tokens(axes: Axes, title: str) -> None:
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda tokens, _: format_count(tokens))
    label_axes(axes, x="tokens of stage 1", y="mean accuracy, %", title=title)


def _by_set(context: SectionContext[Options]) -> Figure:
    """Draw accuracies by set above, output lengths below."""
    suite: Suite = context.suite
    styles = context.styles
    paper = PublishedValues(context.artifact.paper if suite.proxy is None else None)
    names = [*suite.tasks, AVERAGE]
    lengths = [metric_name(name, "tokens") for name in names]
    context.require_defined([*map(metric_name, names), *lengths])
    table = section(context)
    figure, ((top,), (bottom,)) = subplot_grid(2, 1, (11, 6.4), height_ratios=(3, 2))
    accuracies = [
        estimate._replace(number=min(100.0, max(0.0, estimate.number)))
        for estimate in cell_estimates(select_cells(table, names), ends=partial(_ends, context))
        if estimate.kind != "published" or suite.proxy is None
    ]
    draw_estimates(top, accuracies, styles, {name: _label(name) for name in names})
    of_length = cell_estimates(select_cells(table, lengths))
    of_length = [estimate for estimate in of_length if estimate.kind in ("value", "seed")]
    labels = {metric_name(name, "tokens"): _label(name) for name in names}
    draw_estimates(bottom, of_length, styles, labels)
    for axes in (top, bottom):
        axes.set_ylim(bottom=0)
    published_lengths = [
        f"{row.label} {value:.0f}"
        for row in context.rows
        if (value := paper.number(row.run, lengths[-1])) is not None
    ]
    suffix = f" (published: {', '.join(published_lengths)})" if published_lengths else ""
    label_axes(top, x="", y="accuracy, %", title=proxy_title(context.title, suite.proxy))
    label_axes(bottom, x="", y="tokens", title=f"Mean output length{suffix}")
    handles = [legend_handle("published", hollow=True)] if suite.proxy is None else []
    legend_below(figure, [*row_legend(context.rows, styles, line_width=0, marker_size=6), *handles])
    return figure


def _ends(context: SectionContext[Options], cell: Cell) -> tuple[float, float] | None:
    """Return the interval in %, for a single seed from its standard error over items."""
    suite, seed = context.section.suites[0], context.seeds[0]
    result = context.results.evaluation(suite, cell.row, seed)
    error = get_metric(result, metric_name(cell.column, "stderr"))
    return cell_interval(cell, None if error is None else 100 * error)
