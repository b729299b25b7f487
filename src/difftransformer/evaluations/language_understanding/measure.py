"""Zero- and few-shot accuracy on tasks of lm-eval, by its own evaluator.

Each task is one call of `lm_eval.evaluate`, the heart of `simple_evaluate`, which would read the
environment for five seconds every time: prompts, scores, metrics and standard errors are lm-eval's.
A finished task is kept, so a killed job goes on with the next one.
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
    ask,
    average,
    hide_progress_bars,
    language_model,
    mean_over,
    quiet,
    standard_error,
)
from difftransformer.evaluations.language_understanding.loading import (
    GROUP,
    load_task,
    task_manager,
)
from difftransformer.evaluations.language_understanding.settings import Suite, metric_of
from difftransformer.evaluations.language_understanding.tasks import LANGUAGE_TASKS

logger = logging.getLogger(__name__)


def measure(suite: Suite, context: EvalContext | PretrainedContext) -> EvalResult:
    """Accuracies with lm-eval's standard errors, and their unweighted mean.

    The details of ``context`` get ``{task}.jsonl``, every item with its prompts, scores and
    outcome, and ``{task}.json``, what lm-eval says of the task and itself.

    Returns:
        For each task that is asked, see `Suite.asked_tasks`: {task} (its metric in
        `LANGUAGE_TASKS`), {task}_stderr (None of one item),
        {task}_samples, {task}_chance (mean over its items of 1 / number of answers, 0 where the
        answer is written), {task}_constant (share of items that got the answer that was given most,
        by its place or its words: 1 where a model gives one answer to everything), {task}_cut
        (share of requests too long for the context, which lose their first tokens) and
        {task}_version of the task in lm-eval. Over these tasks: average, average_stderr (tasks are
        independent) and average_chance. Accuracies are known by item, too.

    Raises:
        CheckpointError: The model cannot be loaded.
        DataError: Items are missing or damaged, or the hub cannot be reached.
    """
    quiet()
    context.state.mkdir(parents=True, exist_ok=True)
    if suite.code_note:
        logger.warning("not asked: %s", suite.code_note)
    kept = {task: TaskCheckpoint(context.state, task) for task in suite.asked_tasks}
    unfinished = [task for task, one in kept.items() if not one.finished]
    for task in set(kept) - set(unfinished):
        logger.info("%s: already measured", task)
    if unfinished:
        _evaluate(suite, context, unfinished)
    metrics: Metrics = {}
    per_item = {}
    for task, one in kept.items():
        metrics |= one.hand_over(context.details)["metrics"]
        scores = [float(item[suite.metric(task)]) for item in one.items()]
        per_item[task] = per_item_scores("items", scores, item_set=task)
    per_item[AVERAGE] = mean_over(per_item.values())
    metrics |= average(suite.asked_tasks, metrics, "chance")
    return EvalResult(metrics, per_item)


def _evaluate(suite: Suite, context: EvalContext | PretrainedContext, tasks: list[str]) -> None:
    """Measure tasks one by one; the summary of a task is written last."""
    manager = task_manager(tasks)
    with TemporaryDirectory() as cache, hide_progress_bars():
        loaded = {task: load_task(manager, suite, task, Path(cache)) for task in tasks}
        model = language_model(suite, context)
        for task in tasks:
            started, requests, cut = monotonic(), model.requests, model.cut
            runs_code = LANGUAGE_TASKS[task].runs_code
            outputs = ask(model, loaded[task], suite.limit, confirm_run_unsafe_code=runs_code)
            share = (model.cut - cut) / (model.requests - requests)
            count = _keep(context.state, suite, task, outputs, share)
            logger.info("%s: %d items in %.1f s", task, count, monotonic() - started)


def _most_given(samples: list[dict[str, Any]], metric: str) -> int:
    """Items that got the answer, by its place among them or its words, that was given most."""
    return max(Counter(_given(sample, metric) for sample in samples).values())


def _given(sample: dict[str, Any], metric: str) -> int | str:
    """The answer that a metric of lm-eval is of; `acc_norm` compares scores by their letters."""
    replies = sample["filtered_resps"]
    if not _chosen(sample):
        return str(replies[0])
    scores = [float(score) for score, *_ in replies]
    if metric == "acc_norm":
        letters = [len(text.removeprefix(" ")) for _, text in sample["arguments"]]
        scores = [
            score / number if number else -math.inf
            for score, number in zip(scores, letters, strict=True)
        ]
    return scores.index(max(scores))


def _chosen(sample: dict[str, Any]) -> bool:
    """Whether an answer was one of several, each with its score."""
    return not isinstance(sample["filtered_resps"][0], str) and len(sample["filtered_resps"]) > 1


def _keep(folder: Path, suite: Suite, task: str, found: dict[str, Any], cut: float) -> int:
    """Write the items, then the summary that marks the task as measured; how many there are."""
    known, name = LANGUAGE_TASKS[task], suite.metric(task)
    asked = list(known.members.values()) or [task]
    samples = [
        {"task": one, **sample}
        for one in asked
        for sample in found["samples"].get(one, [])
        if sample["filter"] == known.filter
    ]
    results = found["results"][GROUP if known.subjects else task]
    chances = [1 / len(one["filtered_resps"]) if _chosen(one) else 0.0 for one in samples]
    versions = [found["versions"][one] for one in asked if one in found["samples"]]
    metrics = {
        "": results[f"{name},{known.filter}"],
        "stderr": standard_error(results, name, known.filter),
        "samples": len(samples),
        "chance": math.fsum(chances) / len(chances),
        "constant": _most_given(samples, name) / len(samples),
        "cut": cut,
        "version": float(versions[0]),
    }
    # Local paths are left out: those of the items and of the task's file.
    config = dict(found["configs"][next(iter(found["configs"]))])
    config.pop("dataset_kwargs", None)
    metadata = config.get("metadata", {})
    config["metadata"] = {key: metadata[key] for key in metadata if key != "config_source"}
    summary = {
        "metrics": {metric_of(task, part): value for part, value in metrics.items()},
        "results": results,
        "lm_eval_version": lm_eval.__version__,
        "config": config,
        "n-samples": found["n-samples"],
        "n-shot": found["n-shot"],
    }
    TaskCheckpoint(folder, task).keep(samples, summary)
    return len(samples)
