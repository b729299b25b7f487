"""Zero- and few-shot accuracy on tasks of lm-eval, with lm-eval's own evaluator.

Prompts, scores, metrics and standard errors are lm-eval's. Each task is one call of
`lm_eval.evaluate`, not of `simple_evaluate`, which inspects the environment for five seconds every
time. Results of finished tasks are stored, so a killed job resumes with the next task.
"""

import logging
import math
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import lm_eval

from difftransformer.config.evaluation import AVERAGE
from difftransformer.evaluation.context import (
    EvalContext,
    EvalResult,
    Metrics,
    PretrainedContext,
    per_item_scores,
)
from difftransformer.evaluation.harness import (
    TaskCheckpoint,
    evaluate_task,
    hide_progress_bars,
    macro_average,
    mean_of_tasks,
    silence_lm_eval,
    standard_error,
    wrap_for_lm_eval,
)
from difftransformer.evaluations.language_understanding.loading import (
    GROUP,
    load_task,
    task_manager,
)
from difftransformer.evaluations.language_understanding.settings import Suite, task_metric
from difftransformer.evaluations.language_understanding.tasks import LANGUAGE_TASKS

logger = logging.getLogger(__name__)


def measure(suite: Suite, context: EvalContext | PretrainedContext) -> EvalResult:
    """Return lm-eval's accuracies and standard errors of each task, and their unweighted means.

    It writes into the details folder of ``context``: ``{task}.jsonl``, every item with its prompts,
    scores and outcome, and ``{task}.json``, lm-eval's summary of the task and its version.

    Returns:
        For each of `Suite.evaluated_tasks`: {task} (its metric in `LANGUAGE_TASKS`), {task}_stderr
        (None for a single item), {task}_samples, {task}_chance (mean over items of 1 / number of
        choices; 0 for generated answers), {task}_most_common_share (share of items with the model's
        most common answer, by choice or text: 1 for a model with constant predictions),
        {task}_truncated (share of requests too long for the context, which lose their first tokens)
        and {task}_version of the task in lm-eval. Over these tasks: average, average_stderr (tasks
        are independent) and average_chance. Accuracies have per-item scores.

    Raises:
        CheckpointError: The model cannot be loaded.
        DataError: Items are missing or damaged, or the hub cannot be reached.
    """
    silence_lm_eval()
    context.state.mkdir(parents=True, exist_ok=True)
    if suite.skipped_note:
        logger.warning("not evaluated: %s", suite.skipped_note)
    results = {task: TaskCheckpoint(context.state, task) for task in suite.evaluated_tasks}
    unfinished = [task for task, result in results.items() if not result.finished]
    for task in set(results) - set(unfinished):
        logger.info("%s: already measured", task)
    if unfinished:
        _evaluate(suite, context, unfinished)
    metrics: Metrics = {}
    per_item = {}
    for task, result in results.items():
        metrics |= result.copy_to(context.details)["metrics"]
        scores = [float(item[suite.metric(task)]) for item in result.items()]
        per_item[task] = per_item_scores("items", scores, item_set=task)
    per_item[AVERAGE] = mean_of_tasks(per_item.values())
    metrics |= macro_average(suite.evaluated_tasks, metrics, "chance")
    return EvalResult(metrics, per_item)


def _evaluate(suite: Suite, context: EvalContext | PretrainedContext, tasks: list[str]) -> None:
    """Evaluate tasks one by one and store their results."""
    manager = task_manager(tasks)
    with TemporaryDirectory() as cache, hide_progress_bars():
        loaded = {task: load_task(manager, suite, task, Path(cache)) for task in tasks}
        model = wrap_for_lm_eval(suite, context)
        for task in tasks:
            started, requests, cut = monotonic(), model.requests, model.truncated
            runs_code = LANGUAGE_TASKS[task].runs_code
            outputs = evaluate_task(
                model, loaded[task], suite.limit, confirm_run_unsafe_code=runs_code
            )
            truncated = (model.truncated - cut) / (model.requests - requests)
            count = _store_results(context.state, suite, task, outputs, truncated)
            logger.info("%s: %d items in %.1f s", task, count, monotonic() - started)


def _most_common_count(samples: list[dict[str, Any]], metric: str) -> int:
    """Return the number of items with the most common answer, by its choice or its text."""
    return max(Counter(_model_answer(sample, metric) for sample in samples).values())


def _model_answer(sample: dict[str, Any], metric: str) -> int | str:
    """Return the answer that a metric scores: the best choice (acc_norm: per letter) or a text."""
    replies = sample["filtered_resps"]
    if not _is_multiple_choice(sample):
        return str(replies[0])
    scores = [float(score) for score, *_ in replies]
    if metric == "acc_norm":
        letters = [len(text.removeprefix(" ")) for _, text in sample["arguments"]]
        scores = [
            score / number if number else -math.inf
            for score, number in zip(scores, letters, strict=True)
        ]
    return scores.index(max(scores))


def _is_multiple_choice(sample: dict[str, Any]) -> bool:
    """Whether an item has several choices, each with a score."""
    return not isinstance(sample["filtered_resps"][0], str) and len(sample["filtered_resps"]) > 1


def _store_results(
    folder: Path, suite: Suite, task: str, output: dict[str, Any], truncated: float
) -> int:
    """Write the items and the summary of a task; returns the number of items."""
    spec, metric = LANGUAGE_TASKS[task], suite.metric(task)
    subtasks = list(spec.subtasks.values()) or [task]
    samples = [
        {"task": subtask, **sample}
        for subtask in subtasks
        for sample in output["samples"].get(subtask, [])
        if sample["filter"] == spec.filter
    ]
    results = output["results"][GROUP if spec.subjects else task]
    chances = [
        1 / len(sample["filtered_resps"]) if _is_multiple_choice(sample) else 0.0
        for sample in samples
    ]
    versions = [output["versions"][subtask] for subtask in subtasks if subtask in output["samples"]]
    metrics = {
        "": results[f"{metric},{spec.filter}"],
        "stderr": standard_error(results, metric, spec.filter),
        "samples": len(samples),
        "chance": math.fsum(chances) / len(chances),
        "most_common_share": _most_common_count(samples, metric) / len(samples),
        "truncated": truncated,
        "version": float(versions[0]),
    }
    # Drop local paths: of the items, and of the task's config file.
    config = dict(output["configs"][next(iter(output["configs"]))])
    config.pop("dataset_kwargs", None)
    metadata = config.get("metadata", {})
    config["metadata"] = {key: metadata[key] for key in metadata if key != "config_source"}
    summary = {
        "metrics": {task_metric(task, part): value for part, value in metrics.items()},
        "results": results,
        "lm_eval_version": lm_eval.__version__,
        "config": config,
        "n-samples": output["n-samples"],
        "n-shot": output["n-shot"],
    }
    TaskCheckpoint(folder, task).save(samples, summary)
    return len(samples)
