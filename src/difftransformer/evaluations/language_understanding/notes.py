"""Notes under the tables of language understanding."""

from difftransformer.config.evaluation import AVERAGE
from difftransformer.evaluations.language_understanding.settings import Options, Suite, task_metric
from difftransformer.evaluations.language_understanding.tasks import LANGUAGE_TASKS
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.section_context import SectionContext

CONSTANT_SHARE = 0.95
"""Share of items with the same answer at and above which predictions count as constant."""


def task_label(task: str) -> str:
    """Return the column header of a task, or of the average over tasks."""
    return "Avg" if task == AVERAGE else LANGUAGE_TASKS[task].label


def _constant_prediction_note(context: SectionContext[Options], suite: Suite) -> list[str]:
    """Name the tasks where a model has constant predictions, so that its accuracy means little."""
    if not context.options.most_common_share:
        return []
    constant_predictions = {
        (row.label, task)
        for row in context.rows
        for result in context.eval_results(row)
        for task in suite.evaluated_tasks
        if require_metric(result, task_metric(task, "most_common_share")) >= CONSTANT_SHARE
    }
    listed = "; ".join(
        f"{task_label(task)}: {', '.join(labels)}"
        for task in suite.evaluated_tasks
        if (
            labels := [
                row.label for row in context.rows if (row.label, task) in constant_predictions
            ]
        )
    )
    return [
        f"Same answer to at least {CONSTANT_SHARE:.0%} of the items, in at least one seed: "
        f"{listed or 'none'}."
    ]


def notes(context: SectionContext[Options]) -> list[str]:
    """Return the notes under a table: items, few-shot examples, scores and skipped tasks."""
    suite, results = context.suite, context.eval_results()
    versions = {result.provenance.versions.get("lm-eval", "unknown") for result in results}
    words = {
        "hub": "the benchmarks, from the Hugging Face hub, at a pinned revision where lm-eval or "
        "this suite names one",
        "builtin": "a few of our own in the benchmarks' schemas, not the benchmarks: do not "
        "compare with published numbers",
    }
    counts = {
        task_label(task): int(require_metric(results[0], task_metric(task, "samples")))
        for task in suite.evaluated_tasks
    }
    amount = ", ".join(f"{label} {count}" for label, count in counts.items())
    if len(set(counts.values())) == 1:
        amount = f"{next(iter(counts.values()))} per task"
    lines = [
        f"{_examples(suite)} before each item, by lm-eval {', '.join(sorted(versions))}; "
        f"{_scores(suite)}. In parentheses: lm-eval's standard error over items.",
        f"Items: {words.get(suite.data, 'the benchmarks, from local files')}; {amount}.",
    ]
    truncated = [
        require_metric(result, task_metric(task, "truncated"))
        for result in results
        for task in suite.evaluated_tasks
    ]
    if any(truncated):
        lines.append(
            f"Requests longer than the model's context lose their first tokens: "
            f"{min(truncated):.0%} to {max(truncated):.0%} of a task's requests."
        )
    if generative := [
        task_label(task) for task in suite.evaluated_tasks if LANGUAGE_TASKS[task].max_gen_toks
    ]:
        limit = suite.max_new_tokens
        lines.append(
            f"{' and '.join(generative)} have generated answers, for which guessing scores 0"
            + (f"; they end after {limit} tokens." if limit is not None else ".")
        )
    if suite.skipped_note:
        lines.append(f"Not evaluated, and not in the average: {suite.skipped_note}.")
    lines += [context.training_note(), *context.difference_note()]
    return [*lines, *_constant_prediction_note(context, suite)]


def _examples(suite: Suite) -> str:
    if suite.num_fewshot is not None:
        return f"{suite.num_fewshot} few-shot examples"
    nonzero = [
        f"{task_label(task)} {suite.fewshot(task)}"
        for task in suite.evaluated_tasks
        if suite.fewshot(task)
    ]
    return f"lm-eval's default number of few-shot examples ({', '.join([*nonzero, 'others 0'])})"


def _scores(suite: Suite) -> str:
    """Name the metrics: acc, and the tasks with another one."""
    by_metric: dict[str, list[str]] = {}
    for task in suite.evaluated_tasks:
        if (name := suite.metric(task)) != "acc":
            by_metric.setdefault(name, []).append(task_label(task))
    other_metrics = [f"{name} for {' and '.join(labels)}" for name, labels in by_metric.items()]
    return ", and ".join(["acc", *other_metrics])
