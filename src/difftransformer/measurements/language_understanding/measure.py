"""Zero- and few-shot accuracy on multiple-choice tasks, by lm-eval's own evaluator.

Each task is one call of `lm_eval.evaluate`, the heart of `simple_evaluate`, which would read the
environment for five seconds every time: prompts, scores, metrics and standard errors are lm-eval's.
A finished task is kept, so a killed job goes on with the next one.

Tasks are those bundled with lm-eval, on pinned or local data. Only the folders of the tasks in
question are read: the whole collection takes 20 seconds. A task in an inline group is merged over
the registered one, which a dict alone is not.
"""

import logging
import math
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import lm_eval
import lm_eval.tasks
from lm_eval.api.task import Task
from lm_eval.defaults import DEFAULT_OTHER_SEED
from lm_eval.tasks import TaskManager

from difftransformer.config.measurement import AVERAGE
from difftransformer.evaluation.harness import (
    KeptTask,
    ask,
    average,
    bars_for_people,
    language_model,
    mean_over,
    quiet,
)
from difftransformer.evaluation.item_files import hub_items
from difftransformer.evaluation.subject import Measured, Metrics, PretrainedSubject, Subject, means
from difftransformer.measurements.language_understanding.settings import Suite, metric_of
from difftransformer.measurements.language_understanding.tasks import (
    LANGUAGE_TASKS,
    check_items,
    task_files,
)

logger = logging.getLogger(__name__)

_SPLITS = {"train": "training_split", "validation": "validation_split", "test": "test_split"}


def measure(suite: Suite, subject: Subject | PretrainedSubject) -> Measured:
    """Accuracies with lm-eval's standard errors, and their unweighted mean.

    The details of ``subject`` get ``{task}.jsonl``, every item with its prompts, scores and
    outcome, and ``{task}.json``, what lm-eval says of the task and itself.

    Returns:
        For each task: {task} (acc or acc_norm, see `LANGUAGE_TASKS`), {task}_stderr,
        {task}_samples, {task}_chance (mean over its items of 1 / number of answers),
        {task}_constant (share of items that got the answer that was given most, by its place: 1
        where a model gives one answer to everything), {task}_cut
        (share of requests too long for the context, which lose their first tokens) and
        {task}_version of the task in lm-eval. Over tasks: average, average_stderr (tasks are
        independent) and average_chance. Accuracies are known by item, too.

    Raises:
        CheckpointError: The model cannot be loaded.
        DataError: Items are missing or damaged, or the hub cannot be reached.
    """
    quiet()
    subject.state.mkdir(parents=True, exist_ok=True)
    kept = {task: KeptTask(subject.state, task) for task in suite.tasks}
    unfinished = [task for task, one in kept.items() if not one.finished]
    for task in set(suite.tasks) - set(unfinished):
        logger.info("%s: already measured", task)
    if unfinished:
        _evaluate(suite, subject, unfinished)
    metrics: Metrics = {}
    units = {}
    for task, one in kept.items():
        metrics |= one.hand_over(subject.details)["metrics"]
        scores = [item[suite.metric(task)] for item in one.items()]
        units[task] = means("items", scores, of=task)
    units[AVERAGE] = mean_over(units.values())
    metrics |= average(suite.tasks, metrics, "chance")
    return Measured(metrics, units)


def task_manager(tasks: list[str]) -> TaskManager:
    """Return a manager that knows the folders of these tasks."""
    bundled = Path(lm_eval.tasks.__file__).parent
    folders = sorted({LANGUAGE_TASKS[task].folder for task in tasks})
    return TaskManager(
        include_path=[str(bundled / name) for name in folders], include_defaults=False
    )


def load_task(manager: TaskManager, suite: Suite, task: str, cache: Path) -> Task:
    """Load a task with its items; ``cache`` gets what `datasets` makes of local files.

    Raises:
        DataError: An item in a file cannot be asked, or the hub cannot be reached.
    """
    files = task_files(task, suite.data)
    for path in files.values():
        check_items(task, path)
    override: dict[str, Any]
    guard: AbstractContextManager[None]
    if files:
        override, guard = local_override(task, files, cache), nullcontext()
    else:
        known = LANGUAGE_TASKS[task]
        override = {"task": task, "dataset_kwargs": {"revision": known.revision}}
        guard = hub_items(task, known.dataset, "a folder with its items or to builtin")
    group = {
        "group": "language_understanding",
        "task": [{**override, "num_fewshot": suite.num_fewshot}],
    }
    with guard:
        loaded: Task = manager.load([group])["tasks"][task]
    loaded.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
    return loaded


def local_override(task: str, files: dict[str, Path], cache: Path) -> dict[str, Any]:
    """Return what makes a bundled task read files.

    Without training items solved examples come from the validation items. lm-eval leaves the asked
    item out of its own examples only if it is of the `test_split`; so where the validation items
    are asked too, they are declared as that.
    """
    asked = "test" if "test" in files else "validation"
    override: dict[str, Any] = {
        "task": task,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {
            "data_files": {split: str(path.resolve()) for split, path in files.items()},
            "cache_dir": str(cache),
        },
    }
    override |= {key: split if split in files else None for split, key in _SPLITS.items()}
    override["test_split"] = asked
    if "train" not in files:
        override["fewshot_split"] = "validation" if "validation" in files else asked
    return override


def _evaluate(suite: Suite, subject: Subject | PretrainedSubject, tasks: list[str]) -> None:
    """Measure tasks one by one; the summary of a task is written last."""
    manager = task_manager(tasks)
    with TemporaryDirectory() as cache, bars_for_people():
        loaded = {task: load_task(manager, suite, task, Path(cache)) for task in tasks}
        model = language_model(suite, subject)
        for task in tasks:
            started, requests, cut = monotonic(), model.requests, model.cut
            found = ask(model, loaded[task], suite.limit)
            share = (model.cut - cut) / (model.requests - requests)
            _keep(subject.state, suite, task, found, share)
            seconds = monotonic() - started
            logger.info("%s: %d items in %.1f s", task, len(found["samples"][task]), seconds)


def _most_given(samples: list[dict[str, Any]]) -> int:
    """Items that got the answer, by its place among them, that was given most."""
    scores = [[float(score) for score, *_ in sample["filtered_resps"]] for sample in samples]
    return max(Counter(one.index(max(one)) for one in scores).values())


def _keep(folder: Path, suite: Suite, task: str, found: dict[str, Any], cut: float) -> None:
    """Write the items, then the summary that marks the task as measured."""
    samples, results = found["samples"][task], found["results"][task]
    name = suite.metric(task)
    choices = [len(sample["filtered_resps"]) for sample in samples]
    metrics = {
        "": results[f"{name},none"],
        "stderr": results[f"{name}_stderr,none"],
        "samples": len(samples),
        "chance": math.fsum(1 / count for count in choices) / len(choices),
        "constant": _most_given(samples) / len(samples),
        "cut": cut,
        "version": float(found["versions"][task]),
    }
    summary = {
        "metrics": {metric_of(task, part): value for part, value in metrics.items()},
        "results": results,
        "lm_eval_version": lm_eval.__version__,
        "config": found["configs"][task],
        "n-samples": found["n-samples"][task],
        "n-shot": found["n-shot"][task],
    }
    KeptTask(folder, task).keep(samples, summary)
