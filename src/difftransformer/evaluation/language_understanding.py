"""Zero- and few-shot accuracy on multiple-choice tasks, by lm-eval's own evaluator.

Each task is one call of `lm_eval.evaluate`, the heart of `simple_evaluate`, which would read the
environment for five seconds every time: prompts, scores, metrics and standard errors are lm-eval's.
A finished task is kept, so a killed job goes on with the next one.
"""

import json
import logging
import math
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import lm_eval
from lm_eval.utils import handle_non_serializable

from difftransformer.config.language_tasks import LANGUAGE_TASKS
from difftransformer.config.suites.language_understanding import LanguageUnderstanding
from difftransformer.evaluation.harness_model import language_model
from difftransformer.evaluation.harness_run import ask, average, bars_for_people, quiet
from difftransformer.evaluation.harness_tasks import load_task, task_manager
from difftransformer.evaluation.subject import Metrics, PretrainedSubject, Subject
from difftransformer.provenance.atomic import replacing, write_text

logger = logging.getLogger(__name__)


def measure(suite: LanguageUnderstanding, subject: Subject | PretrainedSubject) -> Metrics:
    """Accuracies with lm-eval's standard errors, and their unweighted mean.

    Args:
        suite: Tasks, solved examples, items and where they come from.
        subject: The model. ``details`` gets ``{task}.jsonl``, every item with its prompts, scores
            and outcome, and ``{task}.json``, what lm-eval says of the task and itself.

    Returns:
        For each task: {task} (acc or acc_norm, see `LANGUAGE_TASKS`), {task}_stderr,
        {task}_samples, {task}_chance (mean over its items of 1 / number of answers), {task}_cut
        (share of requests too long for the context, which lose their first tokens) and
        {task}_version of the task in lm-eval. Over tasks: average, average_stderr (tasks are
        independent) and average_chance.

    Raises:
        CheckpointError: The model cannot be loaded.
        DataError: Items are missing or damaged, or the hub cannot be reached.
    """
    quiet()
    subject.state.mkdir(parents=True, exist_ok=True)
    unfinished = [task for task in suite.tasks if not _summary(subject.state, task).is_file()]
    for task in set(suite.tasks) - set(unfinished):
        logger.info("%s: already measured", task)
    if unfinished:
        _evaluate(suite, subject, unfinished)
    metrics: Metrics = {}
    for task in suite.tasks:
        for path in (_summary(subject.state, task), _samples(subject.state, task)):
            shutil.copyfile(path, subject.details / path.name)
        metrics |= json.loads(_summary(subject.state, task).read_text(encoding="utf-8"))["metrics"]
    return metrics | average(suite.tasks, metrics, "chance")


def _evaluate(
    suite: LanguageUnderstanding, subject: Subject | PretrainedSubject, tasks: list[str]
) -> None:
    """Measure tasks one by one; the summary of a task is written last."""
    manager = task_manager(tasks)
    with TemporaryDirectory() as cache, bars_for_people():
        loaded = {task: load_task(manager, suite, task, Path(cache)) for task in tasks}
        model = language_model(suite, subject)
        for task in tasks:
            started, requests, cut = monotonic(), model.requests, model.cut
            found = ask(model, loaded[task], suite.limit)
            share = (model.cut - cut) / (model.requests - requests)
            _keep(subject.state, task, found, share)
            seconds = monotonic() - started
            logger.info("%s: %d items in %.1f s", task, len(found["samples"][task]), seconds)


def _keep(folder: Path, task: str, found: dict[str, Any], cut: float) -> None:
    """Write the items, then the summary that marks the task as measured."""
    samples = found["samples"][task]
    with replacing(_samples(folder, task)) as aside, aside.open("w", encoding="utf-8") as file:
        for sample in samples:
            file.write(_json(sample) + "\n")
    known = LANGUAGE_TASKS[task]
    results = found["results"][task]
    choices = [len(sample["filtered_resps"]) for sample in samples]
    metrics = {
        task: results[f"{known.metric},none"],
        f"{task}_stderr": results[f"{known.metric}_stderr,none"],
        f"{task}_samples": len(samples),
        f"{task}_chance": math.fsum(1 / count for count in choices) / len(choices),
        f"{task}_cut": cut,
        f"{task}_version": float(found["versions"][task]),
    }
    kept = {
        "metrics": metrics,
        "results": results,
        "lm_eval_version": lm_eval.__version__,
        "config": found["configs"][task],
        "n-samples": found["n-samples"][task],
        "n-shot": found["n-shot"][task],
    }
    write_text(_summary(folder, task), _json(kept, indent=1) + "\n")


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, default=handle_non_serializable, ensure_ascii=False, indent=indent)


def _summary(folder: Path, task: str) -> Path:
    return folder / f"{task}.json"


def _samples(folder: Path, task: str) -> Path:
    return folder / f"{task}.jsonl"
