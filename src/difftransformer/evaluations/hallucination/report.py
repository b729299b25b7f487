"""Share of answers without hallucination by set and judge, and the agreement of two judges."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from difftransformer.config.evaluation import Options
from difftransformer.config.judges import judged_suite
from difftransformer.evaluations.hallucination.answers import JUDGMENTS, read_judgments
from difftransformer.evaluations.hallucination.settings import (
    HALLUCINATION_SETS,
    TASKS,
    Suite,
    average_metric,
    set_label,
    set_metric,
)
from difftransformer.provenance.result import Result
from difftransformer.reporting.cells import UNDEFINED, CellKey, PublishedValues, mean_cell
from difftransformer.reporting.charts import cell_estimates, draw_estimates, make_estimates
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Cell, Column, Section, SeedValue
from difftransformer.reporting.drawing import Figure, label_axes, legend_below
from difftransformer.reporting.number_format import format_number
from difftransformer.reporting.panels import row_legend, subplot_grid
from difftransformer.reporting.section_context import SectionContext, shared_suite
from difftransformer.reporting.sections import MetricColumn, make_section, metric_section
from difftransformer.reporting.statistics import wilson_interval
from difftransformer.reporting.table_notes import format_range, shared_setting

DECIMALS = 2
_AVERAGES = {average_metric(task): f"{name}, mean" for task, name in TASKS.items()}
Pairs = Sequence[tuple[bool, bool]]
"""Verdicts of two judges on each of several answers."""


def section(context: SectionContext[Options]) -> list[Section]:
    """Return the report sections of judged answers.

    They are one section per judge, one of the paper's sets that are not evaluated here, and one
    for the agreement of the first judge with each other judge.
    """
    first, *other_judges = context.section.judges
    suite = shared_settings(context)
    sections = [_judge_section(context, first, suite, "", [context.training_note()])]
    unmeasured = [name for name in HALLUCINATION_SETS if name not in suite.set_tasks]
    if unmeasured:
        sections.append(_published(context, unmeasured, suite))
    sections += [_judge_section(context, judge, suite, f"_{judge}", []) for judge in other_judges]
    sections += [_agreement(context, (first, judge), suite) for judge in other_judges]
    return sections


def figure(context: SectionContext[Options]) -> Figure:
    """Draw the first judge's shares of answers without hallucination, beside the published ones."""
    sets = list(shared_settings(context).set_tasks)
    judge_view = judged_view(context, context.section.judges[0])
    figure, ((measured_axes, published_axes),) = subplot_grid(1, 2, (11, 4.2), sharey=True)
    measured = cell_estimates(
        _share(judge_view.eval_results(row), row.run, name) for row in context.rows for name in sets
    )
    published = [
        point
        for row in context.rows
        for name in HALLUCINATION_SETS
        for point in make_estimates(name, row.run, context.published.number(row.run, name))
    ]
    for axes, points, names, title in (
        (measured_axes, measured, sets, f"Scale {context.artifact.scale}"),
        (published_axes, published, list(HALLUCINATION_SETS), "Published"),
    ):
        labels = {name: set_label(name).replace(", ", "\n") for name in names}
        draw_estimates(axes, points, context.styles, labels)
        axes.set_ylim(0, 1.04)
        y = "share free of hallucination" if axes is measured_axes else ""
        label_axes(axes, x="", y=y, title=title)
    legend_below(figure, row_legend(context.rows, context.styles, line_width=0, marker_size=6))
    return figure


def shared_settings(context: SectionContext[Options]) -> Suite:
    """Return the settings with which answers were generated, which all models must share.

    Raises:
        UserError: A result is missing, or the settings differ.
    """
    suite: Suite = shared_suite(
        [
            context.results.judgment(context.section.suites[0], judge, row.run, seed)
            for judge in context.section.judges
            for row in context.rows
            for seed in context.seeds
        ]
    )
    return suite


def judged_view(context: SectionContext[Options], judge: str) -> SectionContext[Options]:
    """Return the section's context with a judge's results in place of the suite's."""
    return context.replace(suites=[judged_suite(context.section.suites[0], judge)])


def _share(results: Sequence[Result], run: str, name: str) -> Cell:
    """Return the mean share over the judged seeds; a single seed has Wilson's interval."""
    metric = set_metric("faithful", name)
    cell = MetricColumn(name, "", metric).cell(run, results, DECIMALS, PublishedValues(None))
    if cell.value is not None and cell.n == 1:
        (judged,) = (result for result in results if result.metrics[metric] is not None)
        answers = int(require_metric(judged, set_metric("judged", name)))
        low, high = wilson_interval(round(cell.value * answers), answers)
        cell = cell.model_copy(update={"ci_low": low, "ci_high": high})
    return cell


def _judge_section(
    context: SectionContext[Options], judge: str, suite: Suite, ending: str, notes: Sequence[str]
) -> Section:
    title = f"{context.title}, judged by {_judge_name(judge, suite)}"
    judge_view = judged_view(context, judge).replace(title=title)
    metrics = [
        MetricColumn(name + ending, f"{set_label(name)} ↑", set_metric("faithful", name))
        for name in suite.set_tasks
    ]
    metrics += [
        MetricColumn(name + ending, f"{header} ↑", name, show_difference=True)
        for name, header in (_AVERAGES | {"average": "All, mean"}).items()
    ]
    metrics += [
        MetricColumn(cause + ending, cause, _judged_share(cause, suite), csv_only=True)
        for cause in ("contradicted", "unsupported")
    ]
    metrics.append(MetricColumn("unjudged" + ending, "unjudged", "unjudged", csv_only=True))
    notes = [*_notes(suite, judge, judge_view.eval_results()), *notes]
    return metric_section(judge_view, metrics, decimals=DECIMALS, notes=notes)


def _judged_share(cause: str, suite: Suite) -> Callable[[Result], float | None]:
    def read_share(result: Result) -> float | None:
        judged = _total("judged", suite, result)
        return _total(cause, suite, result) / judged if judged else None

    return read_share


def _total(kind: str, suite: Suite, result: Result) -> float:
    """Sum of a count over the sets."""
    counts = (result.metrics.get(set_metric(kind, name)) for name in suite.set_tasks)
    return sum(float(count or 0) for count in counts)


def _published(context: SectionContext[Options], names: list[str], suite: Suite) -> Section:
    """Build the section of the paper's sets that are not evaluated here."""
    cells = [
        mean_cell(CellKey(row.run, name), [], DECIMALS, context.published)
        for row in context.rows
        for name in names
    ]
    columns = [Column(id=name, header=f"{set_label(name)} ↑") for name in names]
    note = f"Not evaluated at scale {context.artifact.scale}. GPT-4o judged the published values."
    return make_section(context.replace(title="The paper's sets"), columns, cells, [note])


def _agreement(context: SectionContext[Options], judges: tuple[str, str], suite: Suite) -> Section:
    """Build the section of raw agreement and Cohen's kappa per seed, over answers both judged."""
    names = {"": "all sets"} | {f"_{name}": set_label(name) for name in suite.set_tasks}
    measures: Mapping[str, tuple[str, Callable[[Pairs], float | None]]] = {
        "agreement": ("Same verdict", agreement),
        "kappa": ("Cohen's κ", cohen_kappa),
    }
    cells: list[Cell] = []
    for row in context.rows:
        by_seed = {seed: _pairs(context, judges, row.run, seed) for seed in context.seeds}
        for ending, (label, (_, measure)) in product(names, measures.items()):
            seeds = []
            for seed, (jobs, verdicts) in by_seed.items():
                pairs = [pair for name, pair in verdicts if ending in ("", f"_{name}")]
                value = measure(pairs) if pairs else None
                text = UNDEFINED
                if value is not None:
                    text = f"{format_number(value, DECIMALS)} of {len(pairs)}"
                seeds.append(SeedValue(seed=seed, value=value, text=text, job_ids=jobs))
            cells.append(
                mean_cell(CellKey(row.run, label + ending), seeds, DECIMALS, PublishedValues(None))
            )
    columns = [
        Column(id=label + ending, header=f"{header}, {name}", csv_only=bool(ending))
        for ending, name in names.items()
        for label, (header, _) in measures.items()
    ]
    note = (
        "Over the answers that both judged. κ is agreement beyond chance (Cohen 1960); n/a "
        "if both judges always give the same verdict."
    )
    first, second = (_judge_name(judge, suite) for judge in judges)
    return make_section(
        context.replace(title=f"Agreement of {first} and {second}"), columns, cells, [note]
    )


def _pairs(
    context: SectionContext[Options], judges: tuple[str, str], run: str, seed: int
) -> tuple[list[str], list[tuple[str, tuple[bool, bool]]]]:
    """Return the jobs of two judges, and (set, both verdicts) of every answer that both judged."""
    views = [judged_view(context, judge) for judge in judges]
    first, second = (
        {
            (judgment.set, judgment.index): judgment.faithful
            for judgment in read_judgments(view.detail(run, seed, JUDGMENTS))
        }
        for view in views
    )
    jobs = [
        context.results.judgment(context.section.suites[0], judge, run, seed).job_id
        for judge in judges
    ]
    return jobs, [
        (key[0], (verdict, other))
        for key, verdict in first.items()
        if verdict is not None and (other := second.get(key)) is not None
    ]


def agreement(pairs: Pairs) -> float:
    """Return the fraction of answers on which two judges agree; needs at least one answer."""
    return sum(first == second for first, second in pairs) / len(pairs)


def cohen_kappa(pairs: Pairs) -> float | None:
    """Return Cohen's kappa, the agreement of two judges beyond chance (Cohen 1960).

    Returns:
        1 for full agreement, 0 for agreement by chance; None if both judges always give the same
        verdict, so that chance agreement is 1.
    """
    n = len(pairs)
    first, second = (sum(pair[judge] for pair in pairs) / n for judge in (0, 1))
    chance = first * second + (1 - first) * (1 - second)
    return None if chance == 1 else (agreement(pairs) - chance) / (1 - chance)


def _judge_name(judge: str, suite: Suite) -> str:
    if judge == "endpoint":
        return "a language model"
    return "the known facts" if suite.format == "recall" else "a lexical judge"


def _notes(suite: Suite, judge: str, results: Sequence[Result]) -> list[str]:
    settings = shared_setting(results, "judge")
    unjudged = [require_metric(result, "unjudged") for result in results]
    outputs = [_total("judged", suite, run) + _total("unjudged", suite, run) for run in results]
    notes = [
        f"Share of {suite.samples} outputs per set that the judge finds free of hallucination. "
        f"{_ABOUT[suite.format]}",
        f"Judge: {_judge_note(judge, suite, settings)}. Of {format_range(outputs)} outputs per run "
        f"{format_range(unjudged)} are unjudged and excluded.",
    ]
    absent = [
        set_label(name)
        for name in suite.set_tasks
        if any(result.metrics.get(set_metric("faithful", name)) is None for result in results)
    ]
    if absent:
        notes.append(f"n/a, {', '.join(absent)}: no items in {suite.data}, or none was judged.")
    return notes


_ABOUT = {
    "recall": "Sets are ours, not the paper's: rows of the recall corpus with N facts, each a key "
    "and its value. An answer is the value of the key in the prompt; a summary starts from a key "
    "in the prompt and continues with keys and values that the model chooses.",
    "text": "Decoding is greedy. A document longer than the model's context loses its end; the "
    "judge sees the truncated document.",
}


def _judge_note(judge: str, suite: Suite, settings: Mapping[str, Any]) -> str:
    if judge == "endpoint":
        return f"{settings['model']} with our prompt {settings['prompt']}"
    if suite.format == "recall":
        return "lexical, which is exact here: every stated pair must occur in the document"
    return (
        "lexical: numbers, names and words must occur in the document, but for "
        f"{1 - settings['content_share']:.0%} of a summary's other words; true paraphrases count "
        "as hallucinated"
    )
